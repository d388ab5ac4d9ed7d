"""Find known words, tracebacks and torchrun's failure tables in one log, in one pass over its bytes.

The words are looked for by the Aho-Corasick automaton of the ``ahocorasick_rs`` package; Python looks only at the lines in
which something stands. What is kept is bounded, whatever the log repeats.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence

from shardguide.guidance.hints import Any

from .blocks import FRAME, OTHERS, RAISED, RAISES, ROOT, STACK, TRACEBACK, Stack, Table, Traceback
from .clean import Line, line_of
from .digest import hasher
from .records import Event, Evidence, Failed, Raised
from .source import chunks

KEPT = 64  # events of one sign that are kept: the first half as they come, the last half as they are replaced
MOST_RAISED = 4096
WIDEST = 1 << 16  # bytes of a line that are looked at
TAIL = 1 << 15  # bytes of the end, in which exceptions without a traceback are looked for
FEW = 2000  # bytes that are read as what somebody pasted, whatever stands in them
_STRUCTURES = (TRACEBACK, ROOT, OTHERS, STACK)

_SAME_FILE_RANK = (
    re.compile(r"(?:^|[/\\])(?:attempt_\d+[/\\])?(?P<rank>\d{1,6})[/\\]std(?:out|err)\.log(?:\.\w+)?$"),
    re.compile(r"(?:^|[^A-Za-z])[rR]ank[_-]?(?P<rank>\d{1,6})(?!\d)"),
    re.compile(r"(?:^|[/\\_.-])r(?P<rank>\d{1,6})\.(?:log|out|err|txt)(?:\.\w+)?$"),
)


def matcher(signs: Sequence[str], much: bool = True) -> Any:
    """The automaton for the words, made once for all files.

    For ``much`` to read it is the form that reads two to three times as fast, but takes ten times as long to build (about
    20 ms for 1,300 words): not worth it below some megabytes.
    """
    from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

    words = [*(sign.encode() for sign in signs), *_STRUCTURES]
    # Overlapping matches are wanted (one sign may be part of another), which only the standard kind can give.
    form = Implementation.DFA if much else Implementation.ContiguousNFA
    return BytesAhoCorasick(words, matchkind=MatchKind.Standard, implementation=form)


def rank_of_file(path: str) -> int | None:
    """The rank that a file's name or folder names: torchrun's ``attempt_0/3/stderr.log``, ``rank3.log``, ``r3.log``."""
    for pattern in _SAME_FILE_RANK:
        found = list(pattern.finditer(path))
        if found:
            return int(found[-1]["rank"])  # the file's own name says more than a folder's above it
    return None


def scan(path: str, automaton: Any, signs: int, name: str = "") -> Evidence:
    """Everything known that stands in a log. ``signs`` is the number of the caller's words in the automaton."""
    reader = _Reader(name or path, signs)
    problem = ""
    from shardguide.guidance.errors import UnusableInput

    try:
        for chunk in chunks(path):
            reader.feed(chunk, automaton)
    except UnusableInput as error:
        if not reader.size:
            raise
        problem = str(error)
    reader.look_at_the_end(automaton)
    return reader.evidence(problem)


class _Reader:
    """State that is carried from chunk to chunk."""

    def __init__(self, file: str, signs: int) -> None:
        self.file = file
        self.rank = rank_of_file(file)
        self.signs = signs
        self.size = self.lines = 0
        self.first: dict[int, list[Event]] = {}
        self.latest: dict[int, list[Event]] = {}
        self.counts: dict[int, int] = {}
        self.raised: list[Raised] = []
        self.failed: list[Failed] = []
        self.fatal: tuple[Raised, ...] = ()
        self.open: dict[tuple[int | None, int | None], Traceback] = {}
        self.table: Table | None = None
        self.last = self.tail = b""
        self.ends = 0  # of lines
        self.content = hasher()
        self.handed = -1  # start of the line in this chunk that an open traceback took before its words were looked at

    def feed(self, chunk: bytes, automaton: Any) -> None:
        """One chunk of whole lines."""
        at = number = 0  # offset and lines before it, within the chunk
        done = -1  # start of the last line that was looked at
        begin = end = 0  # of the line in which the last word stands
        self.handed = -1
        line = Line("", None, None)
        seen: set[int] = set()
        many: dict[int, deque[int]] = {}  # where signs that are everywhere stand last: looked at when the chunk is done
        counts, full = self.counts, KEPT // 2
        for sign, start, _ in automaton.find_matches_as_indexes(chunk, overlapping=True):
            if sign < self.signs and not self.open and counts.get(sign, 0) >= full:
                counts[sign] += 1
                many.setdefault(sign, deque(maxlen=full)).append(start)
                continue
            if self.open or self.table:
                at, number = self._read_on(chunk, at, number, start)
            if not begin <= start < end:  # a line can be long, and full of words
                begin = chunk.rfind(b"\n", 0, start) + 1
                end = chunk.find(b"\n", start)
                end = len(chunk) if end < 0 else end
            if begin >= at:
                number += chunk.count(b"\n", at, begin)
                at = begin
            if begin != done:
                line = line_of(chunk[begin : min(end, begin + WIDEST)])
                done = begin
                seen.clear()
            if sign in seen:
                continue
            seen.add(sign)
            if sign < self.signs:
                counts[sign] = counts.get(sign, 0) + 1
                self._event(sign, line, self.lines + number + 1)
            elif sign in (self.signs, self.signs + 3):
                self._start(line, self.lines + number + 1, Traceback if sign == self.signs else Stack)
                at, number = end + 1, number + 1
            elif self.table is None:
                self.table = Table(self.file, sign == self.signs + 1)
                at, number = end + 1, number + 1
        if self.open or self.table:
            at, number = self._read_on(chunk, at, number, len(chunk))
        if many:
            self._late(chunk, many)
        self.lines += number + chunk.count(b"\n", at)
        self.size += len(chunk)
        self.ends += chunk.count(b"\n")
        self.content.update(chunk)
        self.tail = (self.tail + chunk[-TAIL:])[-TAIL:]
        tail = chunk.rstrip()
        if tail:
            self.last = tail[tail.rfind(b"\n") + 1 :][-4000:]

    def _event(self, sign: int, line: Line, number: int) -> None:
        traceback = self.open.get((line.rank, line.local))
        if traceback is not None and not traceback.kind and line.text.startswith("    "):
            return  # the source line under a frame, which quotes what is raised there
        rank = line.rank if line.rank is not None else self.rank
        event = Event(sign, self.file, number, rank, line.local, line.text)
        kept = self.first.setdefault(sign, [])
        if len(kept) < KEPT // 2:
            kept.append(event)
            return
        latest = self.latest.setdefault(sign, [])
        latest.append(event)
        if len(latest) > KEPT:
            del latest[: KEPT // 2]

    def _late(self, chunk: bytes, many: dict[int, deque[int]]) -> None:
        """The last places of signs that stand almost everywhere; all others of them were only counted."""
        at = number = 0
        begin = end = 0
        for start, sign in sorted((start, sign) for sign, starts in many.items() for start in starts):
            if not begin <= start < end:
                begin = chunk.rfind(b"\n", 0, start) + 1
                end = chunk.find(b"\n", start)
            number += chunk.count(b"\n", at, begin)
            at = begin
            raw = chunk[begin : min(len(chunk) if end < 0 else end, begin + WIDEST)]
            self._event(sign, line_of(raw), self.lines + number + 1)

    def _start(self, line: Line, number: int, make: type[Traceback]) -> None:
        # The lines of a message from C++ carry what the launcher puts in front of every line, and not the rank.
        key = (None if make is Stack else line.rank, line.local)
        before = self.open.get(key)
        if before is not None and before.kind:  # one right after the other
            known = next((one for one in (line.rank, before.rank) if one is not None), self.rank)
            self.raised.append(before.raised(self.file, known, line.local))
        if len(self.raised) < MOST_RAISED and (before is not None or len(self.open) < 1024):
            self.open[key] = make(number)
            self.open[key].rank, self.open[key].time = line.rank, line.time

    def _read_on(self, chunk: bytes, at: int, number: int, until: int) -> tuple[int, int]:
        """Line by line while a traceback or a table is open, at most to the line in which ``until`` lies."""
        while (self.open or self.table) and at < until:
            end = chunk.find(b"\n", at)
            end = len(chunk) if end < 0 else end
            if end >= until and until < len(chunk):
                if at == self.handed:
                    return at, number
                self.handed = at
                # The line in which the next words stand: it belongs to the traceback as well.
                self._line(line_of(chunk[at : min(end, at + WIDEST)]), self.lines + number + 1)
                return at, number
            self._line(line_of(chunk[at : min(end, at + WIDEST)]), self.lines + number + 1)
            at, number = end + 1, number + 1
        return min(at, len(chunk)), number

    def _line(self, line: Line, number: int) -> None:
        key = (line.rank, line.local)
        traceback = self.open.get(key) or self._torn(line, key, number)
        if traceback is not None and number > traceback.at:
            traceback.at = number
            if traceback.take(line.text, number):
                del self.open[key]
                if traceback.kind:
                    rank = next((one for one in (line.rank, traceback.rank) if one is not None), self.rank)
                    self.raised.append(traceback.raised(self.file, rank, line.local))
        if self.table is not None and number > self.table.at:
            self.table.at = number
            if self.table.take(line.text, number):
                self.failed.extend(self.table.rows)
                self.table = None

    def _torn(self, line: Line, key: tuple[int | None, int | None], number: int) -> Traceback | None:
        """The traceback whose head stands right above without the prefix that this line has, or with one that it lacks."""
        if not (FRAME.match(line.text) or RAISED.match(line.text)):
            return None
        for other, one in self.open.items():
            if one.at == number - 1 and not one.kind and not one.read and None in (other[0], key[0]):
                self.open[key] = self.open.pop(other)
                return one
        return None

    def look_at_the_end(self, automaton: Any) -> None:
        """Exceptions without their traceback, and words that a terminal broke or a person typed otherwise than programs do."""
        for (rank, local), traceback in self.open.items():
            if traceback.kind:
                known = next((one for one in (rank, traceback.rank) if one is not None), self.rank)
                self.raised.append(traceback.raised(self.file, known, local))
        pasted = self.size <= FEW and self.rank is None  # what a rank's own file holds is all that it wrote
        if not pasted and (self.raised or not any(word in self.tail for word in RAISES)):
            return
        from .loose import PASTED_ALONE, end_of, read

        lines = self.ends + (not self.tail.endswith(b"\n"))
        texts = end_of(self.tail, lines, pasted)
        if not texts:
            return
        found = read(texts, self.file, self.raised, lines, self.rank, pasted)
        self.raised.extend(found.raised)
        self.fatal = found.fatal
        ranks = {one.number: one for one in texts}
        for number, text in found.said:
            at = ranks[number]
            for sign in {sign for sign, _, _ in automaton.find_matches_as_indexes(text.encode(), overlapping=True)}:
                if sign < self.signs and sign not in self.counts:
                    self.counts[sign] = 1
                    shown = text.removeprefix(PASTED_ALONE)
                    self._event(sign, Line(shown, at.rank, at.local, at.time), number)

    def evidence(self, problem: str) -> Evidence:
        """What was found, when everything was read."""
        if self.table is not None:
            self.table.close()
            self.failed.extend(self.table.rows)
        events = [one for sign in self.first for one in (*self.first[sign], *self.latest.get(sign, ())[-KEPT // 2 :])]
        return Evidence(
            self.file,
            self.rank,
            self.size,
            self.lines,
            tuple(sorted(events, key=lambda one: (one.line, one.sign))),
            tuple(sorted(self.counts.items())),
            tuple(sorted(self.raised, key=lambda one: one.line)),
            tuple(self.failed),
            line_of(self.last).text,
            problem,
            self.content.hexdigest(),
            self.fatal,
        )


def merged(parts: Iterable[Evidence]) -> list[Evidence]:
    """The evidence of all files, in the order of their names."""
    return sorted(parts, key=lambda one: one.file)
