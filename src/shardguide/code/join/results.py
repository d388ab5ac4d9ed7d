"""What the check gives: a table of each iteration against its hook, mistakes with their place, and what could not be followed."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import NamedTuple

from ..review.project import File


class Issue(NamedTuple):
    """A mistake, or what may be one."""

    code: str  # the rule of review that speaks of it
    file: File
    node: ast.AST
    what: str  # the words for the rule's message
    violated: bool = True  # whether the shadow is wrong; otherwise it is not proven
    certain: bool = True  # whether review may call it certain

    @property
    def line(self) -> int:
        """The line, from 1."""
        return self.file.line(self.node)


class Row(NamedTuple):
    """One step of an iteration against its shadow."""

    step: int  # from 1
    iteration: str  # "" where the shadow makes one too many
    at: str  # path:line
    hook: str  # "" where it is missing
    hook_at: str
    result: str  # "matched", "differs", "missing", "extra", "unknown"
    why: str


class Verdict(NamedTuple):
    """The result for one Joinable, or one Join."""

    name: str
    kind: str  # "Joinable" or "Join"
    path: str
    line: int
    verdict: str  # "proven", "violated", "unknown"
    rows: tuple[Row, ...]
    issues: tuple[Issue, ...]
    unknown: tuple[str, ...]  # why it is not proven
    assumes: tuple[str, ...]  # under what it holds
    when: str  # the branches of the way that the table shows
    corrected: str  # code; "" for none
    parts: tuple[str, ...] = ()  # of a Join: "ddp", "zero", "own"
    throws: bool = False  # of a Join: throw_on_early_termination


class Unknowns:
    """Reasons, each once."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def add(self, words: str) -> None:
        """One more reason."""
        if words not in self.said:
            self.said.append(words)


def verdict_of(issues: list[Issue], unknown: list[str]) -> str:
    """Violated if something is wrong, unknown if something is open, else proven."""
    if any(one.violated for one in issues):
        return "violated"
    return "unknown" if issues or unknown else "proven"


def place(file: File, node: ast.AST) -> str:
    """``path:line``."""
    return f"{file.path}:{file.line(node)}"
