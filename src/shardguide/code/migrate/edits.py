"""Changes to a source text that leave everything else as it is: spans that are replaced, lines that come and go.

Positions are those of ``ast``: lines from 1, columns in UTF-8 bytes. A replacement may quote parts of what it replaces (``text``);
changes inside those parts are made there, so that converted calls can stand inside converted calls.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterable

from shardguide.guidance.errors import UnusableInput

Text = str | Callable[[], str]  # a function: what is known only when all changes are there


class Source:
    """One file's text with the changes that are to be made."""

    def __init__(self, text: str) -> None:
        self.data = text.encode("utf-8")
        self.lines = self.data.split(b"\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.spans: dict[tuple[int, int], Text] = {}
        self.inserted: dict[int, list[Text]] = {}  # whole lines, before the line that begins at this offset
        self._read = False
        self._strings: list[tuple[int, int]] = []  # first and last line
        self._comments: list[tuple[int, str]] = []

    def offset(self, line: int, column: int) -> int:
        """Where a position is in the bytes."""
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends."""
        return (
            self.offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def raw(self, node: ast.AST) -> str:
        """A node as written."""
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8")

    def text(self, node: ast.AST) -> str:
        """A node with the changes inside it, its own included."""
        return self.between(*self.span(node))

    def inside(self, node: ast.AST) -> str:
        """A node with the changes inside it, without the one of the node as a whole."""
        return self.between(*self.span(node), skip=self.span(node))

    def replace(self, node: ast.AST, text: Text) -> None:
        """Put ``text`` in the place of a node."""
        self.spans[self.span(node)] = text

    def cut(self, start: int, end: int, text: Text = "") -> None:
        """Put ``text`` in the place of a stretch of bytes."""
        self.spans[start, end] = text

    def before(self, statement: ast.stmt, lines: Iterable[Text]) -> None:
        """Insert lines before a statement, with its indentation; decorators count to it."""
        first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
        self.at_line(first, lines, self.indent(statement))

    def after(self, statement: ast.stmt, lines: Iterable[Text]) -> None:
        """Insert lines after a statement, with its indentation."""
        self.at_line((statement.end_lineno or statement.lineno) + 1, lines, self.indent(statement))

    def at_line(self, line: int, lines: Iterable[Text], indent: str = "") -> None:
        """Insert lines before a line of the file; a function stands for several."""
        place = self.starts[min(line, len(self.lines) + 1) - 1]
        new = [_indented(one, indent) for one in lines]
        self.inserted.setdefault(place, []).extend(new)

    def indent(self, statement: ast.AST) -> str:
        """The white space before a statement."""
        line = self.lines[statement.lineno - 1]  # type: ignore[attr-defined]
        return line[: len(line) - len(line.lstrip())].decode("utf-8")

    def alone(self, statement: ast.stmt) -> bool:
        """Whether a statement has its lines for itself: no ``if x: y``, no ``x; y``."""
        before = self.lines[statement.lineno - 1][: statement.col_offset]
        after = self.lines[(statement.end_lineno or 1) - 1][statement.end_col_offset :].strip()
        return not before.strip() and (not after or after.startswith(b"#"))

    def delete(self, statement: ast.stmt) -> None:
        """Take a statement's lines away; its comments stay."""
        end = min(self.starts[min(statement.end_lineno or 1, len(self.lines))], len(self.data))
        self.before(statement, self.comments(self.starts[statement.lineno - 1], end))
        self.spans[self.starts[statement.lineno - 1], end] = ""

    def comments(self, start: int, end: int) -> list[str]:
        """The comments in a stretch of bytes."""
        self._tokens()
        return [text for place, text in self._comments if start <= place < end]

    def dedent(self, body: list[ast.stmt], to: str, first: int) -> None:
        """Move the lines from ``first`` to the end of statements out to an indentation, but for the insides of strings."""
        last = body[-1].end_lineno or body[-1].lineno
        drop = len(self.indent(body[0]).encode()) - len(to.encode())
        for number in range(first, last + 1):
            line, start = self.lines[number - 1], self.starts[number - 1]
            space = len(line) - len(line.lstrip())
            if line.strip() and space and not self._in_string(start):
                self.spans[start, start + min(drop, space)] = ""

    def _in_string(self, place: int) -> bool:
        self._tokens()
        number = self.line_of(place)
        return any(first < number <= last for first, last in self._strings)

    def _tokens(self) -> None:
        """Find the strings that go over lines, and the comments."""
        if self._read:
            return
        self._read = True
        begin = (0, 0)
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.data.decode("utf-8")).readline):
                name = tokenize.tok_name[token.type]
                if name in ("FSTRING_START", "TSTRING_START"):
                    begin = token.start
                elif name in ("FSTRING_END", "TSTRING_END"):
                    self._strings.append((begin[0], token.end[0]))
                elif name == "STRING" and token.start[0] != token.end[0]:
                    self._strings.append((token.start[0], token.end[0]))
                elif name == "COMMENT":
                    column = len(token.line[: token.start[1]].encode("utf-8"))
                    self._comments.append((self.offset(token.start[0], column), token.string))
        except (tokenize.TokenError, IndentationError, SyntaxError):
            pass

    def line_of(self, place: int) -> int:
        """The line, from 1, that an offset is in."""
        import bisect

        return bisect.bisect_right(self.starts, place)

    def strings_in(self, start: int, end: int) -> bool:
        """Whether a string that goes over lines is in a stretch of bytes."""
        self._tokens()
        first, last = self.line_of(start), self.line_of(end)
        return any(first <= begin and stop <= last for begin, stop in self._strings)

    def changes_in(self, start: int, end: int) -> bool:
        """Whether there are changes in a stretch of bytes already."""
        return any(start <= one[0] and one[1] <= end for one in self.spans) or any(
            start < place < end for place in self.inserted
        )

    @property
    def changed(self) -> bool:
        """Whether anything is to be changed."""
        return bool(self.spans or self.inserted)

    def between(self, start: int, end: int, skip: tuple[int, int] | None = None, *, within: bool = False) -> str:
        """A stretch of the text with the changes in it; where one lies in another, the outer one counts.

        ``within``: without the lines that were put in right before it.
        """
        items: list[tuple[int, int, int, Text]] = [
            (one[0], 1, one[1], text) for one, text in self.spans.items()
            if start <= one[0] and one[1] <= end and one != skip
        ]  # fmt: skip
        items.extend(
            (place, 0, place, "".join(f"{line if isinstance(line, str) else line()}\n" for line in lines))
            for place, lines in self.inserted.items()
            if start + within <= place < end or (place == end and place == len(self.data))
        )
        items.sort(
            key=lambda one: (one[0], one[1], one[2] != one[0], -one[2])
        )  # what is put in comes before what is cut
        out: list[str] = []
        at = start
        for begin, order, stop, text in items:
            if begin < at and (order or begin < at):
                continue
            out.append(self.data[at:begin].decode("utf-8"))
            out.append(text if isinstance(text, str) else text())
            at = max(at, stop)
        out.append(self.data[at:end].decode("utf-8"))
        return "".join(out)

    def result(self, where: str) -> str:
        """The text with every change. Raises UnusableInput if that is no Python."""
        after = self.between(0, len(self.data))
        try:
            ast.parse(after)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UnusableInput(f"{where}: the changes together would not give valid Python ({error}).") from None
        return after


def _indented(line: Text, indent: str) -> Text:
    if isinstance(line, str):
        return f"{indent}{line}" if line else ""
    return lambda: "\n".join(f"{indent}{one}" if one else "" for one in line().split("\n"))
