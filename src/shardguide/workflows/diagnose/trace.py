"""Profiler traces: how much of a step is communication that nothing hides, who arrives last, and how long the GPU waits.

Only what was measured is said. A collective's duration holds its waiting: the rank with the shortest one arrived last. So
late ranks are found without comparing clocks of different machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Fact
from shardguide.knowledge import diagnosis_store
from shardguide.readers.chrome_trace import CPU, Collective, Step, Trace, read
from shardguide.readers.intervals import Intervals

from .files import Input
from .match import Candidate, Shown
from .merge import once

# Shardguide's own lines: no documentation draws one.
EXPOSED = 0.25  # of the steps' time is communication with no kernel beside it
IDLE = 0.30  # of the steps' time no kernel and no copy runs
LATE = 0.7  # of the collectives have this rank as the last to arrive
WAITED = 0.10  # of the steps' time the others wait for it
FEW = 3  # collectives; fewer show nothing
# In which every rank waits for every other. In a broadcast the source does not wait, and a send is not of all ranks.
SYMMETRIC = ("all_gather", "all_reduce", "all_to_all", "barrier", "reduce_scatter")
MOST_FACTS = 8  # ranks, and steps of each, of which every number is shown


class Measured(NamedTuple):
    """One step of one device, in microseconds."""

    step: Step
    communication: float
    computation: float
    exposed: float  # communication while no kernel computes
    idle: float  # neither communication, computation nor copies
    by_name: tuple[tuple[str, float, float], ...]  # (collective, its time, of it exposed)

    @property
    def length(self) -> float:
        """The whole step."""
        return self.step.end - self.step.start


class Late(NamedTuple):
    """A rank that others wait for."""

    rank: int
    last: int  # collectives at which it arrived last
    matched: int  # collectives that all ranks have
    waited: float  # microseconds that the other ranks waited in them, on average
    total: float  # microseconds of all steps


def from_traces(inputs: Sequence[Input]) -> tuple[list[Candidate], list[Fact], list[str]]:
    """Candidates, numbers, and which files could not be read."""
    found: list[Candidate] = []
    facts: list[Fact] = []
    damaged: list[str] = []
    kept: list[tuple[Trace, int]] = []
    for one in inputs:
        try:
            trace = read(one.path)
        except UnusableInput as error:
            if one.named and len(inputs) == 1:
                raise
            damaged.append(str(error))
            continue
        if trace.problem:
            damaged.append(trace.problem)
        for device in sorted(trace.steps):
            steps = measured(trace, device)
            if len(facts) < 2048 and len(kept) < MOST_FACTS:
                facts += _facts(trace, device, steps)
            found += _alone(trace, device, steps)
            # Of the intervals nothing is needed any more: many ranks' traces may follow.
            kept.append((trace._replace(compute={}, copies={}), device))
    late = latest(kept)
    if late is not None:
        found.append(_late(late, kept))
        facts.append(Fact(f"trace.late.rank{late.rank}", f"{late.waited:.0f}", "us",
                          "mean over other ranks of sum(duration - shortest duration of the same collective)"))  # fmt: skip
    return once(found), facts, damaged


def measured(trace: Trace, device: int) -> list[Measured]:
    """The steps of a device in numbers."""
    compute = trace.compute.get(device, Intervals())
    copies = trace.copies.get(device, Intervals())
    collectives = sorted(trace.collectives.get(device, ()), key=lambda one: one.start)
    every = Intervals((one.start, one.start + one.duration) for one in collectives)
    names: dict[str, Intervals] = {}
    for one in collectives:
        names.setdefault(one.name, Intervals()).add(one.start, one.start + one.duration)
    out = []
    for step in trace.steps.get(device, ()):
        window = (step.start, step.end)
        mine, work = every.within(*window), compute.within(*window)
        by_name = []
        for name, intervals in sorted(names.items()):
            part = intervals.within(*window)
            if len(part):
                by_name.append((name, part.length(), part.minus(work)))
        busy = mine.joined(work, copies.within(*window)).length()
        out.append(
            Measured(step, mine.length(), work.length(), mine.minus(work), step.end - step.start - busy, tuple(by_name))
        )
    return out


def _facts(trace: Trace, device: int, steps: list[Measured]) -> list[Fact]:
    out: list[Fact] = []
    of = f"rank{trace.rank}" if trace.rank is not None else "trace"
    of += f".gpu{device}" if device != CPU else ".cpu"
    work = "kernels that are no collectives" if device != CPU else "CPU operators other than c10d's"
    for one in steps[:MOST_FACTS]:
        name = f"trace.{of}.step{one.step.number}" if one.step.number >= 0 else f"trace.{of}.whole"
        numbers = [
            ("time", one.length, "from this step's mark to the next one's"),
            ("communication", one.communication, "length of the union of collectives"),
            ("computation", one.computation, f"length of the union of {work}"),
            ("exposed", one.exposed, "communication minus what overlaps computation"),
        ]
        if device != CPU:
            numbers.append(("idle", one.idle, "time without kernels, collectives and copies"))
        numbers += [
            (f"exposed.{name_}", exposed, f"of {time:.0f} us of {name_}") for name_, time, exposed in one.by_name
        ]
        out += [
            Fact(f"{name}.{key}", f"{value:.1f}", "us", f"{formula}, {trace.file}") for key, value, formula in numbers
        ]
    return out


def _alone(trace: Trace, device: int, steps: list[Measured]) -> list[Candidate]:
    """What one rank's trace shows by itself. CPU traces do not: their operators say nothing of what waits for what."""
    total = sum(one.length for one in steps)
    if device == CPU or not total:
        return []
    out = []
    ranks = () if trace.rank is None else (trace.rank,)
    exposed = sum(one.exposed for one in steps)
    idle = sum(one.idle for one in steps)
    if exposed >= EXPOSED * total:
        by_name: dict[str, float] = {}
        for one in steps:
            for name, _, part in one.by_name:
                by_name[name] = by_name.get(name, 0.0) + part
        most = ", ".join(
            f"{name} {part:.0f} us" for name, part in sorted(by_name.items(), key=lambda each: -each[1])[:4]
        )
        share = f"{exposed:.0f} us of {total:.0f} us in {len(steps)} steps ({100 * exposed / total:.0f} %)"
        text = f"{share} are communication with no kernel beside it: {most}"
        out.append(_candidate("trace_exposed_communication", "likely", ranks, trace.file, text, 3))
    if idle >= IDLE * total:
        text = f"{idle:.0f} us of {total:.0f} us in {len(steps)} steps ({100 * idle / total:.0f} %) no kernel, collective or copy runs"
        out.append(_candidate("trace_gpu_idle", "likely", ranks, trace.file, text, 2))
    return out


def latest(traces: Sequence[tuple[Trace, int]]) -> Late | None:
    """The rank that arrives last at most collectives, if the others wait for it; None where no rank stands out."""
    by_rank: dict[int, tuple[Trace, int]] = {}
    for trace, device in traces:
        if trace.rank is not None and trace.collectives.get(device):
            by_rank.setdefault(trace.rank, (trace, device))
    if len(by_rank) < 2:
        return None
    last: dict[int, int] = {}
    waits: dict[int, float] = {}
    matched = 0
    groups: dict[str, dict[int, list[Collective]]] = {}
    for rank, (trace, device) in by_rank.items():
        first, end = trace.steps[device][0].start, trace.steps[device][-1].end
        for one in sorted(trace.collectives[device], key=lambda each: each.start):
            if first <= one.start < end and one.name in SYMMETRIC:
                groups.setdefault(one.group, {}).setdefault(rank, []).append(one)
    for ranks in groups.values():
        sequences = {tuple(one.name for one in of) for of in ranks.values()}
        if len(ranks) < 2 or len(sequences) != 1:
            continue  # other steps, or other groups under the same name: nothing can be matched
        for at in range(len(next(iter(ranks.values())))):
            durations = {rank: of[at].duration for rank, of in ranks.items()}
            shortest = min(durations.values())
            matched += 1
            arrived = min(rank for rank, duration in durations.items() if duration == shortest)
            last[arrived] = last.get(arrived, 0) + 1
            for rank, duration in durations.items():
                waits[rank] = waits.get(rank, 0.0) + duration - shortest
    if matched < FEW:
        return None
    rank = max(last, key=lambda each: (last[each], -each))
    others = [waits[each] for each in waits if each != rank]
    waited = sum(others) / len(others)
    trace, device = by_rank[rank]
    total = sum(step.end - step.start for step in trace.steps[device])
    if last[rank] < LATE * matched or waited < WAITED * total:
        return None
    return Late(rank, last[rank], matched, waited, total)


def _late(late: Late, traces: Sequence[tuple[Trace, int]]) -> Candidate:
    file = next(trace.file for trace, _ in traces if trace.rank == late.rank)
    text = (
        f"rank {late.rank} is the last to arrive at {late.last} of {late.matched} collectives; the others wait {late.waited:.0f} us "
        f"of {late.total:.0f} us ({100 * late.waited / late.total:.0f} %)"
    )
    return _candidate("trace_late_rank", "likely", (late.rank,), file, text, 5)


def _candidate(name: str, confidence: str, ranks: tuple[int, ...], file: str, text: str, weight: float) -> Candidate:
    return Candidate(diagnosis_store.get(name), confidence, ranks, (Shown(file, 0, text),), weight, (file, 0))
