"""Reading lines without a terminal: from a pipe or a file, one answer a line, prompts and answers written as plain text."""

from __future__ import annotations

import sys

MOST = 1 << 20  # characters of one line


def read(prompt: str, completions: tuple[str, ...]) -> str:
    """The next line, without its end. Raises EOFError where there is none."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline(MOST)
    sys.stdout.write("\n")
    if not line:
        raise EOFError
    return line.encode("utf-8", "replace").decode("utf-8").rstrip("\r\n")
