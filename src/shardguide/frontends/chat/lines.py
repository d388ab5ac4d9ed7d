"""Reading lines without a terminal library: from a pipe or a file, one answer a line, and on terminals that can only print (TERM=dumb).

Prompts and answers are plain text, in the order in which they are read aloud.
"""

from __future__ import annotations

import os
import re
import select
import sys

MOST = 1 << 20  # characters of one line
_PASTED = 0.05  # seconds within which lines that belong together arrive; nobody types a second line that fast


_ahead: list[str] = []  # a line that was read to see whether it belongs to the one before
_RANK = re.compile(r"^(?:\[?rank ?\d+\]?:? ?|\[\d+\]:? ?|\d+: )+", re.IGNORECASE)
_MESSAGE = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b")


def read(prompt: str, completions: tuple[str, ...]) -> str:
    """The next line, without its end; of a traceback all its lines, for they are one answer. Raises EOFError where there is none."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = _next()
    if "Traceback (most recent call last)" in line:
        line += _rest(line)
    sys.stdout.write("\n")
    if not line:
        raise EOFError
    return _clean(line)


def _next() -> str:
    if _ahead:
        return _ahead.pop()
    return sys.stdin.readline(MOST) if sys.stdin is not None else ""  # None: closed by the caller


def _rest(first: str) -> str:
    """The lines of a traceback: indented ones, the message, and what follows with the same rank before it, or begins another."""
    prefixed = bool(_RANK.match(first))
    taken = ""
    ended = False  # its message has come
    while len(taken) < MOST:
        line = _next()
        bare = _RANK.sub("", line).rstrip("\r\n")
        goes_on = bare.startswith(
            (" ", "\t", "Traceback (most recent", "During handling of", "The above exception")
        ) or (prefixed and bool(_RANK.match(line)))
        if not line or not (goes_on or not bare.strip() or (not ended and _MESSAGE.match(bare))):
            if line:
                _ahead.append(line)
            break
        ended = (ended or bool(_MESSAGE.match(bare))) and "Traceback (most recent" not in bare
        taken += line
    return taken


def read_typed(prompt: str, completions: tuple[str, ...]) -> str:
    """The next answer from a plain terminal: a line, or all the lines that arrive with it, for they were pasted."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    taken = b""
    descriptor = sys.stdin.fileno()
    while True:
        part = os.read(descriptor, 1 << 16)
        taken += part
        if not part and not taken:
            raise EOFError
        more = bool(part) and len(taken) < MOST and select.select([descriptor], [], [], _PASTED)[0]
        if not more:
            return _clean(taken.decode("utf-8", "replace"))


def waiting(descriptor: int) -> str:
    """What has arrived besides, with a line's end before it; "" for nothing."""
    taken = b""
    while len(taken) < MOST and select.select([descriptor], [], [], _PASTED)[0]:
        part = os.read(descriptor, 1 << 16)
        if not part:
            break
        taken += part
    text = taken.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return f"\n{text}" if text else ""


def _clean(line: str) -> str:
    return line.encode("utf-8", "replace").decode("utf-8").rstrip("\r\n")
