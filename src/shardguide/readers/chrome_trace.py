"""Traces of the PyTorch profiler (Kineto's Chrome format, JSON or gzip'd), event by event: a file of gigabytes needs little memory.

Read are kernels and copies of a GPU, collectives, CPU operators and the marks of steps. Names are those that Kineto, NCCL, RCCL
and Gloo write: ``ncclDevKernel_AllGather_RING_LL(…)`` (``ncclKernel_…`` up to NCCL 2.18), ``gloo:all_reduce``, ``ProfilerStep#3``.
Times are microseconds; since 2.4 they count from ``baseTimeNanoseconds``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .intervals import Intervals

MOST_COLLECTIVES = 2_000_000
MOST_STEPS = 100_000
MOST_DEVICES = 256
HEADER = 1 << 24  # characters before the list of events
EVENT = 1 << 24  # characters of one event
TAIL = 1 << 20
CPU = -1  # the "device" of traces without a GPU

_START = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
# Collectives of symmetric memory are ordinary kernels with these names.
_SYMMETRIC = re.compile(r"(?:multimem|one_shot|two_shot)_?\w*?(all_reduce|all_gather|reduce_scatter)")
_NAMES = {
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "allreduce": "all_reduce",
    "allreducecoalesced": "all_reduce",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
}


class Collective(NamedTuple):
    """One collective as it ran."""

    name: str  # "all_gather"
    group: str  # of process group, "" where the trace does not say
    start: float
    duration: float


class Step(NamedTuple):
    """One step of the profiler's schedule."""

    number: int  # -1: the whole trace, which has no marks
    start: float
    end: float


class Trace(NamedTuple):
    """One rank's trace."""

    file: str
    rank: int | None
    world: int | None
    backend: str
    events: int
    steps: dict[int, list[Step]]  # by device; CPU's under -1
    compute: dict[int, Intervals]  # kernels that are no collectives, or CPU operators
    copies: dict[int, Intervals]
    collectives: dict[int, list[Collective]]
    problem: str  # why it could not be read to its end


def read(path: str) -> Trace:
    """A trace from its file.

    Raises UnusableInput for a file in which there are no events.
    """
    from .logs.scan import rank_of_file

    found = _Found()
    stream = _Stream(path)
    problem = ""
    try:
        for event in stream.events():
            found.take(event)
    except UnusableInput as error:
        if not found.events:
            raise
        problem = str(error)
    if not found.events:
        raise UnusableInput(f"{path} has no events: it is no trace of the profiler.")
    info = stream.info()
    rank = info.get("rank")
    world = info.get("world_size")
    return Trace(
        path,
        rank if isinstance(rank, int) and 0 <= rank < 1 << 24 else rank_of_file(path),
        world if isinstance(world, int) and 0 < world < 1 << 24 else None,
        str(info.get("backend", ""))[:40],
        found.events,
        found.windows(),
        found.compute if found.gpu else {CPU: found.operators},
        found.copies,
        found.collectives if found.gpu else {CPU: found.cpu_collectives},
        problem,
    )


class _Stream:
    """The events of a file, one after the other."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.header = ""
        self.tail = ""

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event that is an object."""
        import codecs

        from .logs.source import chunks

        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = (decoder.decode(piece) for piece in chunks(self.path))
        buffer = next(pieces, "").lstrip("\ufeff")
        at = self._begin(buffer)
        while at < 0:
            more = next(pieces, None)
            if more is None or len(buffer) > HEADER:
                raise UnusableInput(f"{self.path} has no list of events: it is no trace of the profiler.")
            buffer += more
            at = self._begin(buffer)
        self.header = buffer[:at]
        decode = json.JSONDecoder().raw_decode
        ended = False
        while True:
            found = _BETWEEN.match(buffer, at)
            at = found.end() if found else at
            if buffer[at : at + 1] == "]":
                self._rest(buffer[at + 1 :], pieces)
                return
            try:
                event, at = decode(buffer, at)
            except RecursionError:
                raise UnusableInput(f"{self.path} is nested too deeply to be read.") from None
            except ValueError:
                if ended or len(buffer) - at > EVENT:
                    raise UnusableInput(f"{self.path} is cut off or damaged; events up to there were read.") from None
                more = next(pieces, None)
                ended = more is None
                buffer, at = buffer[at:] + (more or ""), 0
                continue
            if isinstance(event, dict):
                yield event

    @staticmethod
    def _begin(buffer: str) -> int:
        if buffer.lstrip()[:1] == "[":
            return buffer.index("[") + 1
        found = _START.search(buffer)
        return found.end() if found else -1

    def _rest(self, buffer: str, pieces: Iterator[str]) -> None:
        self.tail = buffer[:TAIL]
        for piece in pieces:
            if len(self.tail) >= TAIL:
                return
            self.tail += piece[: TAIL - len(self.tail)]

    def info(self) -> dict[str, Any]:
        """``distributedInfo``, which stands before the events, or after them in what other tools wrote."""
        for text in (self.header, self.tail):
            at = text.find('"distributedInfo"')
            if at < 0:
                continue
            begin = text.find("{", at)
            try:
                value, _ = json.JSONDecoder().raw_decode(text, begin)
            except (ValueError, RecursionError):
                value = {}
            if isinstance(value, dict):
                return value
        return {}


class _Found:
    """What the events say, gathered."""

    def __init__(self) -> None:
        self.events = 0
        self.gpu = False
        self.compute: dict[int, Intervals] = {}
        self.copies: dict[int, Intervals] = {}
        self.collectives: dict[int, list[Collective]] = {}
        self.operators = Intervals()
        self.cpu_collectives: list[Collective] = []
        self.steps: dict[int, dict[int, tuple[float, float]]] = {}
        self.first, self.last = math.inf, -math.inf

    def take(self, event: dict[str, Any]) -> None:
        """One event."""
        if event.get("ph") != "X":
            return
        start, duration, name = event.get("ts"), event.get("dur", 0), event.get("name")
        if not isinstance(start, (int, float)) or not isinstance(duration, (int, float)) or not isinstance(name, str):
            return
        if not (-1e18 < start < 1e18 and 0 <= duration < 1e15):  # what is no number of this world, NaN included
            return
        self.events += 1
        category = event.get("cat")
        end = start + duration
        if category == "cpu_op":
            if not name.startswith("c10d::"):  # waits for others
                self.operators.add(start, end)
        elif category == "kernel":
            self._kernel(event, name, start, end)
        elif category in ("gpu_memcpy", "gpu_memset"):
            device = self._device(event)
            self.copies.setdefault(device, Intervals()).add(start, end)
        elif category == "user_annotation" or category == "gpu_user_annotation":
            self._annotation(event, name, start, end, category == "gpu_user_annotation")
        else:
            return
        self.first, self.last = min(self.first, start), max(self.last, end)

    def _device(self, event: dict[str, Any]) -> int:
        args = event.get("args")
        device = args.get("device") if isinstance(args, dict) else None
        if not isinstance(device, int):
            device = event.get("pid")
        if not isinstance(device, int) or not 0 <= device < 1 << 16:
            device = 0
        if device not in self.compute:
            if len(self.compute) >= MOST_DEVICES:
                return next(iter(self.compute))
            self.compute[device] = Intervals()
            self.collectives[device] = []
        return device

    def _kernel(self, event: dict[str, Any], name: str, start: float, end: float) -> None:
        self.gpu = True
        device = self._device(event)
        kernel = _KERNEL.search(name) or _SYMMETRIC.search(name)
        if kernel is None:
            self.compute[device].add(start, end)
            return
        args = event.get("args")
        said = group = ""
        if isinstance(args, dict):
            said, group = str(args.get("Collective name", "")), str(args.get("Process Group Name", ""))[:80]
        one = Collective(collective(said or kernel[1]), group, start, end - start)
        if len(self.collectives[device]) < MOST_COLLECTIVES:
            self.collectives[device].append(one)

    def _annotation(self, event: dict[str, Any], name: str, start: float, end: float, gpu: bool) -> None:
        if name.startswith("gloo:") and not gpu:
            if len(self.cpu_collectives) < MOST_COLLECTIVES:
                self.cpu_collectives.append(Collective(collective(name[5:]), "", start, end - start))
            return
        step = _STEP.match(name)
        if step is None:
            return
        of = self.steps.setdefault(self._device(event) if gpu else CPU, {})
        number = int(step[1])
        if number in of:  # once for each stream
            before = of[number]
            of[number] = (min(before[0], start), max(before[1], end))
        elif len(of) < MOST_STEPS:
            of[number] = (start, end)

    def windows(self) -> dict[int, list[Step]]:
        """Steps one after the other: each ends where the next begins, so that nothing is counted twice."""
        out: dict[int, list[Step]] = {}
        for device in self.compute if self.gpu else [CPU]:
            marks = self.steps.get(device) or self.steps.get(CPU) or {}
            ordered = sorted(marks.items(), key=lambda one: one[1])
            out[device] = [
                Step(number, start, ordered[at + 1][1][0] if at + 1 < len(ordered) else end)
                for at, (number, (start, end)) in enumerate(ordered)
            ]
            if not ordered and self.last > self.first:
                out[device] = [Step(-1, self.first, self.last)]
        return out


def collective(name: str) -> str:
    """One name for each collective, however NCCL's kernels, PyTorch and Gloo spell it."""
    plain = name.lower().strip("_").replace("_", "")
    return _NAMES.get(plain, name.strip("_").lower())[:40]
