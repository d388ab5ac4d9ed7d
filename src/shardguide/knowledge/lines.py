"""Keyed JSON read by the line: one entry per line, so that a lookup parses only what it needs.

The files under ``data/`` are ordinary JSON objects, written by the scripts with every entry on a line of its own. No JSON
string holds a raw newline, so a newline, a quoted key and a colon mark exactly one place.
"""

# No pathlib in this module: it is on the way of every command.
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os

from shardguide.guidance.hints import Any

DATA = os.path.join(os.path.dirname(__file__), "data")


class Lines:
    """One data file: read at the first lookup, parsed entry by entry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._text = ""

    @property
    def text(self) -> str:
        """The whole file."""
        if not self._text:
            with open(os.path.join(DATA, self.name), encoding="utf-8") as file:
                self._text = file.read()
        return self._text

    def get(self, key: str) -> Any:
        """The entry under `key`, or None."""
        if '"' in key or "\\" in key:
            return None
        start = self.text.find(f'\n"{key}": ')
        if start < 0:
            return None
        start += len(key) + 5
        end = self.text.index("\n", start)
        return json.loads(self.text[start:end].rstrip(","))

    def keys(self) -> list[str]:
        """Every key, in the order of the file."""
        return [line[1 : line.index('": ')] for line in self.text.split("\n") if line.startswith('"')]


def render(entries: dict[str, Any]) -> str:
    """The text of a data file, byte-reproducible: entries in the order given, one per line."""
    body = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entries.items())
    return "{\n" + body + "\n}\n"
