"""Reading lines without a terminal library: from a pipe or a file, one answer a line, and on terminals that can only print (TERM=dumb).

Prompts and answers are plain text, in the order in which they are read aloud.
"""

from __future__ import annotations

import os
import select
import sys

MOST = 1 << 20  # characters of one line
_PASTED = 0.05  # seconds within which lines that belong together arrive; nobody types a second line that fast


def read(prompt: str, completions: tuple[str, ...]) -> str:
    """The next line, without its end. Raises EOFError where there is none."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline(MOST) if sys.stdin is not None else ""  # None: closed by the caller
    sys.stdout.write("\n")
    if not line:
        raise EOFError
    return _clean(line)


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


def _clean(line: str) -> str:
    return line.encode("utf-8", "replace").decode("utf-8").rstrip("\r\n")
