"""Where findings of launch files are put together."""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING

from ..records import Edit, Finding
from .words import Text, Word

if TYPE_CHECKING:
    from ..project import Project


class Report:
    """The findings of one review's launch files."""

    def __init__(self, project: Project, release: str) -> None:
        self.project = project
        self.release = release
        self.findings: list[Finding] = []

    def add(
        self, code: str, text: Text, at: Word, certain: bool, edits: tuple[Edit, ...] = (), **words: object
    ) -> None:
        """Note a finding."""
        given = tuple((name, str(word)) for name, word in words.items())
        self.findings.append(Finding(code, text.path, at.line, max(1, at.column), certain, given, edits))


def replaced(text: Text, line: int, column: int, old: str, new: str) -> tuple[Edit, ...]:
    """The edit that puts ``new`` in the place of ``old``, where ``old`` stands at that column (in characters, from 1)."""
    here = text.lines[line - 1].decode("utf-8", "replace") if 0 < line <= len(text.lines) else ""
    if column < 1 or not here.startswith(old, column - 1):
        return ()
    start = len(here[: column - 1].encode("utf-8"))
    return (Edit(line, start, line, start + len(old.encode("utf-8")), new),)
