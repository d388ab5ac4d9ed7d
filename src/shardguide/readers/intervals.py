"""Sets of time intervals: union, intersection with a window, and what of one set another does not cover."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

COMPACT = 1 << 18


class Intervals:
    """A set of intervals [start, end). Overlapping ones are merged, so memory grows with gaps and not with events."""

    def __init__(self, pairs: Iterable[tuple[float, float]] = ()) -> None:
        self._starts = array("d")
        self._ends = array("d")
        self._limit = COMPACT
        self._merged = True
        for start, end in pairs:
            self.add(start, end)

    def add(self, start: float, end: float) -> None:
        """Add one; nothing happens for an empty one."""
        if end > start:
            self._starts.append(start)
            self._ends.append(end)
            self._merged = False
            if len(self._starts) > self._limit:
                self._merge()
                self._limit = 2 * len(self._starts) + COMPACT

    def _merge(self) -> None:
        if self._merged:
            return
        starts, ends = array("d"), array("d")
        for start, end in sorted(zip(self._starts, self._ends, strict=True)):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        self._starts, self._ends, self._merged = starts, ends, True

    def __len__(self) -> int:
        self._merge()
        return len(self._starts)

    def pairs(self) -> list[tuple[float, float]]:
        """The merged intervals, sorted."""
        self._merge()
        return list(zip(self._starts, self._ends, strict=True))

    def within(self, start: float, end: float) -> Intervals:
        """The part inside a window."""
        self._merge()
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        out = Intervals()
        for index in range(first, last):
            out.add(max(start, self._starts[index]), min(end, self._ends[index]))
        return out

    def length(self) -> float:
        """The sum of all lengths."""
        self._merge()
        # Each by itself: sums of times since 1970 in microseconds would lose what their differences hold.
        return math.fsum(end - start for start, end in zip(self._starts, self._ends, strict=True))

    def minus(self, other: Intervals) -> float:
        """The length of what ``other`` does not cover."""
        theirs = other.pairs()
        at = 0
        left = 0.0
        for start, end in self.pairs():
            while at < len(theirs) and theirs[at][1] <= start:
                at += 1
            here, position = at, start
            while here < len(theirs) and theirs[here][0] < end:
                left += max(0.0, theirs[here][0] - position)
                position = max(position, theirs[here][1])
                here += 1
            left += max(0.0, end - position)
        return left

    def joined(self, *others: Intervals) -> Intervals:
        """The union with others."""
        return Intervals(pair for one in (self, *others) for pair in one.pairs())
