"""Some lines of a log, read again: what tools print in the middle of it is found by its words first, and read as a whole then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .clean import Line, line_of
from .source import chunks

WIDEST = 1 << 16  # bytes of a line that are looked at


def excerpt(path: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, Line]]:
    """The lines of these spans (first and last line, 1-based), in their order, each once, as the program wrote them.

    Raises UnusableInput for a file that cannot be read.
    """
    wanted = joined(spans)
    if not wanted:
        return
    before = 0  # lines of the chunks that are done
    for chunk in chunks(path):
        count = chunk.count(b"\n") + (not chunk.endswith(b"\n"))
        at, number = 0, before  # an offset, and the lines in front of it
        while wanted and wanted[0][0] <= before + count:
            first, last = wanted[0]
            while number < first - 1 and (end := chunk.find(b"\n", at)) >= 0:
                at, number = end + 1, number + 1
            while number < last and at < len(chunk):
                end = chunk.find(b"\n", at)
                end = len(chunk) if end < 0 else end
                number += 1
                yield number, line_of(chunk[at : min(end, at + WIDEST)])
                at = end + 1
            if last > before + count:
                wanted[0] = (before + count + 1, last)
                break
            del wanted[0]
        before += count
        if not wanted:
            return


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in their order, those that meet as one."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((max(first, 1), last))
    return out
