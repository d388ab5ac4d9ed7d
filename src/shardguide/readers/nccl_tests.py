"""Output of nccl-tests and rccl-tests (``all_gather_perf`` and its siblings), as printed or with a launcher's prefixes.

The layout is that of https://github.com/NVIDIA/nccl-tests, src/util.cu (``writeResultHeader``), which has changed over
the years: the columns are taken from the header line above a table. ``algbw`` and ``busbw`` are in GB/s (10**9 bytes
per second), ``time`` in microseconds; doc/PERFORMANCE.md there says how they follow from each other.
"""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple

from .files import lines, shown

# ncclDataType names as the tests print them (src/common.cu), the old ones included.
_TYPES = "int8|uint8|char|int32|uint32|int|int64|uint64|half|float|double|bfloat16|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2"
_ROW = re.compile(rf"(?:^|[\s:>|])([0-9]{{1,18}})[ \t]+([0-9]{{1,18}})[ \t]+({_TYPES})[ \t]+(\S.*)$", re.ASCII)
_HEADER = re.compile(r"\bsize\s+count\s+type\b(.*)")
_RANK = re.compile(
    r"\bRank\s+([0-9]{1,7})\s+(?:Group\s+[0-9]+\s+)?Pid\s+[0-9]+\s+on\s+(\S+)\s+device\s+([0-9]+)\s+\[([0-9a-fA-Fx:.]+)\]"
    r"\s*(.*)$",
    re.ASCII,
)
_NAME = re.compile(
    r"\b(all_gather|all_reduce|alltoall|alltoallv|broadcast|gather|hypercube|reduce|reduce_scatter|scatter|sendrecv)_perf"
)
_AVERAGE = re.compile(r"\bAvg bus bandwidth\s*:\s*([0-9.eE+-]{1,24})")
_BOUNDS = re.compile(r"\bOut of bounds values\s*:\s*([0-9]{1,18})")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-]?[0-9]{1,3})?", re.ASCII)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The header of every version since 2022, for rows that were pasted without it.
_USUAL = "redop root time algbw busbw wrong time algbw busbw wrong"


class Timing(NamedTuple):
    """One direction (out of place or in place) of one row, exactly as printed."""

    time: str  # microseconds
    algbw: str  # GB/s
    busbw: str  # GB/s
    wrong: str  # elements that came out wrong; "N/A" when they were not checked


class Row(NamedTuple):
    """One message size."""

    size: int  # bytes
    elements: int  # as the table counts them: of one rank's part for all_gather and reduce_scatter
    dtype: str  # as printed, e.g. "float"
    redop: str  # "sum", "none"; "" in old versions that do not print it
    out_of_place: Timing | None
    in_place: Timing | None
    line: int  # 1-based, in the file


class Device(NamedTuple):
    """One line of “Using devices”."""

    rank: int
    host: str
    device: int
    bus: str  # as printed, e.g. "0x8d" or "0009:01:00"
    name: str  # e.g. "NVIDIA H100 80GB HBM3"


class BandwidthTest(NamedTuple):
    """One run of one test."""

    collective: str  # "all_gather", "reduce_scatter", "all_reduce" …; "" when the text does not say
    devices: tuple[Device, ...]
    rows: tuple[Row, ...]
    average_busbw: str  # GB/s as printed; "" when the run did not end
    out_of_bounds: int | None  # count of wrong values over the run
    line: int  # of its first table line
    notes: tuple[str, ...] = ()


def looks_like(text: str) -> bool:
    """Whether ``text`` holds output of these tests."""
    return bool(_HEADER.search(text) or ("busbw" in text) or _AVERAGE.search(text))


def _row(match: re.Match[str], columns: list[str], line: int) -> Row | None:
    """A table line read by its header; None when they do not agree."""
    tokens = match[4].split()
    if "redop" not in columns and tokens and not _NUMBER.fullmatch(tokens[0]) and tokens[0] != "N/A":
        return None
    named: list[tuple[str, str]] = []
    timings = columns.count("busbw")
    if len(tokens) == len(columns):
        named = list(zip(columns, tokens, strict=True))
    elif timings == 2 and len(tokens) >= 6:
        # The in-place half alone is printed when there is no out-of-place result.
        half = columns.index("busbw") + 2
        single = [c for c in columns[:half] if c in ("redop", "root")] + columns[half:]
        if len(tokens) != len(single):
            return None
        named = [("skip", ""), *zip(single, tokens, strict=True)]
    if not named:
        return None
    halves: list[dict[str, str]] = []
    redop = ""
    for column, token in named:
        if column == "redop":
            redop = token
        elif column in ("time", "cputime"):
            halves.append({"time": token})
        elif halves and column in ("algbw", "busbw", "wrong", "error"):
            halves[-1]["wrong" if column == "error" else column] = token
    found: list[Timing] = []
    for values in halves:
        time, algbw, busbw = (values.get(key, "") for key in ("time", "algbw", "busbw"))
        if not all(_NUMBER.fullmatch(value) for value in (time, algbw, busbw)):
            return None
        found.append(Timing(time, algbw, busbw, values.get("wrong", "N/A")))
    if not found or len(found) > 2:
        return None
    first: Timing | None = found[0]
    second = found[1] if len(found) == 2 else None
    if second is None and named[0][0] == "skip":
        first, second = None, first
    return Row(int(match[1]), int(match[2]), match[3], redop, first, second, line)


class _Run:
    """A run being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.devices: list[Device] = []
        self.rows: list[Row] = []
        self.unread: list[int] = []
        self.average = ""
        self.bounds: int | None = None
        self.line = 0

    def finished(self) -> BandwidthTest | None:
        if not self.rows and not self.average:
            return None
        notes: list[str] = []
        ranks = [device.rank for device in self.devices]
        if len(set(ranks)) != len(ranks):
            notes.append(
                "Several processes call themselves the same rank: the test was built without MPI, so each host "
                "measured itself alone."
            )
        if self.unread:
            notes.append(f"{len(self.unread)} table lines could not be read, the first in line {self.unread[0]}.")
        if not self.name:
            notes.append("The output does not say which collective was measured.")
        if not self.average:
            notes.append("The run has no closing line (Avg bus bandwidth), so it may not have ended.")
        return BandwidthTest(
            self.name, tuple(self.devices), tuple(self.rows), self.average, self.bounds, self.line, tuple(notes)
        )


def read_nccl_tests(text: str, where: str) -> tuple[BandwidthTest, ...]:
    """Every run in ``text``, in its order; values as printed. An empty tuple when there is none."""
    runs: list[BandwidthTest] = []
    columns = _USUAL.split()
    name = ""
    run = _Run("")

    def close() -> None:
        nonlocal run
        done = run.finished()
        if done is not None:
            runs.append(done)
        run = _Run(name)

    for number, raw in enumerate(lines(text, where), start=1):
        line = _ESCAPE.sub("", raw[:2000]).rstrip()
        if "_perf" in line:
            named = _NAME.search(line)
            if named:
                if "concluded" in line and runs and not run.rows:
                    # Printed after the summary: the last run's own name, whatever stood above it.
                    runs[-1] = runs[-1]._replace(collective=named[1])
                elif run.rows and named[1] != name:
                    close()
                name = named[1]
                if not run.rows:
                    run.name = name
        header = _HEADER.search(line)
        if header:
            if run.rows and run.average:
                close()
            columns = header[1].replace("#", "").split()
            if columns and columns[-1] == "timestamp":
                columns[-1:] = ["timestamp", "timestamp"]  # a date and a time of day
            continue
        device = _RANK.search(line)
        if device:
            if run.rows:
                close()
            shown_name = shown(device[5])[:100]
            run.devices.append(Device(int(device[1]), shown(device[2]), int(device[3]), device[4], shown_name))
            continue
        match = _ROW.search(line)
        if match:
            row = _row(match, columns, number)
            if row is None:
                run.unread.append(number)
            else:
                run.line = run.line or number
                run.rows.append(row)
            continue
        bounds = _BOUNDS.search(line)
        if bounds:
            run.bounds = int(bounds[1])
        average = _AVERAGE.search(line)
        if average and _NUMBER.fullmatch(average[1]):
            run.average = average[1]
            run.line = run.line or number
            close()
    close()
    return tuple(runs)
