"""Step times: a CSV or TSV table, or the lines that a training loop prints. The unit must be stated somewhere."""

from __future__ import annotations

import re

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from .files import lines, quoted

MAX_STEPS = 1_000_000

_UNITS = {
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "ms": "ms", "msec": "ms", "millisecond": "ms", "milliseconds": "ms",
    "us": "us", "µs": "us", "usec": "us", "microsecond": "us", "microseconds": "us",
}  # fmt: skip
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?(?:e[+-]?[0-9]{1,2})?"
_S = r"[ \t]{0,9}"
_LINE = re.compile(
    rf"\b(?:step|iter|iteration)[ _]?time(?:[ _]?(?:\(|\[|in )?(?P<before>[a-zµ]{{1,12}})[)\]]?)?{_S}[:=]?{_S}"
    rf"(?P<value>{_NUMBER}){_S}(?P<after>[a-zµ]{{1,12}})?(?![\w.])",
    re.IGNORECASE,
)
# Megatron-LM prints "elapsed time per iteration (ms): 1234.5".
_ELAPSED = re.compile(
    rf"\btime per (?:iteration|step){_S}(?:\((?P<before>[a-zµ]{{1,12}})\))?{_S}[:=]{_S}(?P<value>{_NUMBER}){_S}"
    r"(?P<after>[a-zµ]{1,12})?(?![\w.])",
    re.IGNORECASE,
)
_STEP = re.compile(r"\b(?:step|iter|iteration)s?[ \t]{0,9}[:=#]?[ \t]{0,9}([0-9]{1,12})\b", re.IGNORECASE | re.ASCII)


class Step(NamedTuple):
    """The time of one step, exactly as given."""

    step: int | None  # as the file numbers them
    time: str
    unit: str  # "s", "ms" or "us"
    rank: int | None
    line: int  # 1-based, in the file

    @property
    def seconds(self) -> float:
        """The same in seconds."""
        return float(self.time) / {"s": 1.0, "ms": 1e3, "us": 1e6}[self.unit]


def _unit_of(heading: str) -> tuple[bool, str]:
    """Whether a column heading names a step's time, and the unit in it ("" when it states none)."""
    words = [word for word in re.split(r"[^a-zµ]+", heading.lower()) if word]
    unit = next((_UNITS[word] for word in words if word in _UNITS), "")
    timed = bool({"time", "duration", "elapsed", "latency"} & set(words)) or (len(words) == 1 and bool(unit))
    return timed, unit


def _whole(text: str) -> int | None:
    text = text.strip()
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) else None


def read_table(text: str, where: str) -> tuple[Step, ...]:
    """A table with a heading line, e.g. ``step,seconds`` or ``rank<TAB>step<TAB>step_time_ms``.

    An empty tuple when ``text`` is not such a table. Raises UnusableInput when it is one without a unit, or with a time
    that is not a number.
    """
    rows = lines(text, where)
    start = next((i for i, line in enumerate(rows) if line.strip()), len(rows))
    if start == len(rows) or len(rows[start]) > 2000:
        return ()
    separator = next((s for s in ("\t", ",", ";") if s in rows[start]), None)
    headings = [cell.strip().strip('"') for cell in (rows[start].split(separator) if separator else [rows[start]])]
    timed = [(i, unit) for i, heading in enumerate(headings) for is_time, unit in [_unit_of(heading)] if is_time]
    if not timed or any(len(heading) > 40 or re.search("[0-9]", heading) for heading in headings):
        return ()  # a sentence or values, not headings
    column, unit = next(((i, u) for i, u in timed if u), timed[0])
    if not unit:
        raise UnusableInput(
            f"{where}: the column {quoted(headings[column])} has no unit; call it seconds, step_time_ms or alike."
        )
    lowered = [heading.lower() for heading in headings]
    step_column = next((i for i, h in enumerate(lowered) if h in ("step", "iter", "iteration", "global_step")), None)
    rank_column = next((i for i, h in enumerate(lowered) if h in ("rank", "global_rank")), None)
    steps: list[Step] = []
    for number, line in enumerate(rows[start + 1 :], start=start + 2):
        if not line.strip():
            continue
        cells = [cell.strip().strip('"') for cell in (line.split(separator) if separator else [line])]
        if len(cells) != len(headings) or not re.fullmatch(_NUMBER, cells[column], re.IGNORECASE | re.ASCII):
            raise UnusableInput(f"{where}, line {number}: this does not match the heading {quoted(rows[start])}.")
        step = _whole(cells[step_column]) if step_column is not None else None
        rank = _whole(cells[rank_column]) if rank_column is not None else None
        steps.append(Step(step, cells[column], unit, rank, number))
    return tuple(steps)


def read_lines(text: str, where: str) -> tuple[Step, ...]:
    """The step times in lines such as ``step 10 loss 2.3 step time: 0.53 s``; an empty tuple when there are none.

    Raises UnusableInput when no line states a unit.
    """
    steps: list[Step] = []
    unclear = ""
    for number, line in enumerate(lines(text, where), start=1):
        if "time" not in line and "Time" not in line and "TIME" not in line:
            continue
        found = _LINE.search(line[:4000]) or _ELAPSED.search(line[:4000])
        if found is None:
            continue
        stated = [_UNITS.get((found[group] or "").lower(), "") for group in ("after", "before")]
        unit = next((u for u in stated if u), "")
        if not unit:
            unclear = unclear or f"{where}, line {number}: the step time {quoted(found['value'])} has no unit (s, ms)."
            continue
        numbered = _STEP.search(line[:4000])
        steps.append(Step(int(numbered[1]) if numbered else None, found["value"], unit, None, number))
    if unclear and not steps:
        raise UnusableInput(unclear)
    return tuple(steps)
