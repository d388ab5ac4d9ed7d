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


FEW = 8  # look-ups by searching the text; for more, the table of places is read


class Lines:
    """One data file: read at the first lookup, parsed entry by entry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._text = ""
        self._asked = 0
        self._at: dict[str, list[int]] = {}

    @property
    def text(self) -> str:
        """The whole file."""
        if not self._text:
            with open(os.path.join(DATA, self.name), encoding="ascii") as file:
                self._text = file.read()
        return self._text

    @property
    def digest(self) -> str:
        """What identifies the contents, as the script that wrote the file worked it out."""
        return str(json.loads(self._line(self.text.rindex(_DIGEST) + len(_DIGEST))))

    def get(self, key: str) -> Any:
        """The entry under `key`, or None."""
        if '"' in key or "\\" in key or key in _OWN:
            return None
        self._asked += 1
        if self._asked > FEW:
            return self._placed(key)
        start = self.text.find(f'\n"{key}": ')
        return None if start < 0 else json.loads(self._line(start + len(key) + 5))

    def _line(self, start: int) -> str:
        return self.text[start : self.text.index("\n", start)].rstrip(",")

    def _placed(self, key: str) -> Any:
        if not self._at:
            self._at = json.loads(self._line(self.text.rindex(_AT) + len(_AT)))
        place = self._at.get(key)
        return None if place is None else json.loads(self.text[place[0] : place[1]])

    def entry(self, key: str) -> Any:
        """The entry under the id `key`.

        Raises:
            KeyError: there is none; tables, whose names start with @, are no entries.
        """
        found = None if key.startswith("@") else self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def ids(self) -> list[str]:
        """Every key that is no table, in the order of the file."""
        return [key for key in self.keys() if not key.startswith("@")]

    def keys(self) -> list[str]:
        """Every key, in the order of the file."""
        lines = self.text.split("\n")
        return [
            key for key in (line[1 : line.index('": ')] for line in lines if line.startswith('"')) if key not in _OWN
        ]


_OWN = ("@digest", "@at")
_DIGEST = '\n"@digest": '
_AT = '\n"@at": '


def render(entries: dict[str, Any]) -> str:
    """The text of a data file, byte-reproducible: entries in the order given, one per line; digest and table of places last.

    ASCII, so that a place in the text is a place in the file and nothing has to be decoded.
    """
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()]
    at, places = 2, {}
    for key, line in zip(entries, lines, strict=True):
        places[key] = [at + len(json.dumps(key)) + 2, at + len(line)]
        at += len(line) + 2
    from shardguide.guidance.sha import sha256

    digest = sha256("\n".join(lines).encode()).hexdigest()[:12]
    lines += [f'"@digest": "{digest}"', f'"@at": {json.dumps(places, separators=(",", ":"))}']
    return "{\n" + ",\n".join(lines) + "\n}\n"
