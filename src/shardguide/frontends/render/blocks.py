"""What a page consists of, before anybody decided how it looks: plain text, a colour terminal or Markdown."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple


class Title(NamedTuple):
    """The first line: what was answered."""

    text: str


class Heading(NamedTuple):
    """Starts a section."""

    text: str


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Pairs(NamedTuple):
    """Labelled lines; ``mark`` is "", "passed", "failed", "unknown" or "open"."""

    rows: tuple[tuple[str, str, str], ...]  # (label, text, mark)


class Items(NamedTuple):
    """A list of short texts."""

    rows: tuple[str, ...]


class Table(NamedTuple):
    """Columns with a heading each; numbers are right-aligned (every column but the first)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Code(NamedTuple):
    """Text to paste."""

    language: str
    text: str


Block = Title | Heading | Text | Pairs | Items | Table | Code

# Words beside the colour, so that nothing is said by colour alone.
MARKS = {"passed": "✓", "failed": "✗", "unknown": "?", "open": "…", "": " "}
