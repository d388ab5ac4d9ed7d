"""A place in a text that knows its line and column."""

from __future__ import annotations


class Cursor:
    """Where the reading of a shell script stands."""

    def __init__(self, text: str, line: int, column: int) -> None:
        self.text = text
        self.at, self.line, self.start, self.offset = 0, line, 0, column - 1

    def _newline(self) -> None:
        self.line += 1
        self.start = self.at
        self.offset = 0

    def _lines(self, part: str, begin: int) -> None:
        """Keep count of lines in a quoted part."""
        if "\n" in part:
            self.line += part.count("\n")
            self.start = begin + part.rfind("\n") + 1
            self.offset = 0

    def _matching(self, opening: str, closing: str) -> int:
        depth, at = 0, self.at
        while at < len(self.text):
            c = self.text[at]
            if c == "\\":
                at += 1
            elif c == opening:
                depth += 1
            elif c == closing:
                depth -= 1
                if not depth:
                    return at
            at += 1
        return len(self.text) - 1

    def _group(self) -> None:
        """Skip ``( … )``."""
        end = self._matching("(", ")")
        self._lines(self.text[self.at : end], self.at)
        self.at = end + 1
