"""A unified diff applied to a text: exactly, or not at all."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.files import lines_of

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def files(diff: str) -> dict[str, list[str]]:
    """The lines of each file's hunks by its path, ``a/`` and ``b/`` taken off. Raises UnusableInput for what is no such diff."""
    out: dict[str, list[str]] = {}
    lines = lines_of(diff)
    at = 0
    while at < len(lines):
        if lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            path = lines[at + 1][4:].rstrip("\n").partition("\t")[0].removeprefix("b/")
            at += 2
            hunks: list[str] = []
            while at < len(lines) and not lines[at].startswith("--- "):
                at, taken = _hunk(lines, at)
                hunks += taken
            out[path] = hunks
        else:
            raise UnusableInput("the answer's diff cannot be read.")
    return out


def _hunk(lines: list[str], at: int) -> tuple[int, list[str]]:
    """One hunk: its length is counted, since a removed line may itself look like a header."""
    head = _HUNK.match(lines[at])
    if head is None:
        raise UnusableInput("the answer's diff cannot be read.")
    old, new = int(head[2] or 1), int(head[4] or 1)
    taken = [lines[at]]
    at += 1
    while at < len(lines) and (old > 0 or new > 0 or lines[at].startswith("\\")):
        mark = lines[at][:1]
        old -= mark in (" ", "-")
        new -= mark in (" ", "+")
        if mark not in (" ", "-", "+", "\\"):
            raise UnusableInput("the answer's diff cannot be read.")
        taken.append(lines[at])
        at += 1
    return at, taken


def applied(text: str, hunks: list[str], path: str) -> str:
    """``text`` with the hunks made. Raises UnusableInput where any of their lines is not there."""
    lines = lines_of(text)
    out: list[str] = []
    at = 0
    number = 0
    while number < len(hunks):
        head = _HUNK.match(hunks[number])
        assert head is not None
        start = int(head[1]) - (1 if int(head[2] or 1) else 0)
        out += lines[at:start]
        at = start
        number += 1
        while number < len(hunks) and not hunks[number].startswith("@@"):
            mark, line = hunks[number][:1], hunks[number][1:]
            if number + 1 < len(hunks) and hunks[number + 1].startswith("\\"):
                line = line.removesuffix("\n")
            if mark in (" ", "-"):
                if at >= len(lines) or lines[at] != line:
                    raise UnusableInput(
                        f"{path} has changed since the answer was given; ask again, and apply the new one."
                    )
                at += 1
            if mark in (" ", "+"):
                out.append(line)
            number += 1
    return "".join([*out, *lines[at:]])
