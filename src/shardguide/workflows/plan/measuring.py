"""What the user measured, put to use: the peak that closes decisions, and facts shown exactly as they were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardguide.guidance.record import Decision, Fact

from ..numbers import Layout, gib
from ..situation import Situation
from .memory import Peak

if TYPE_CHECKING:
    from shardguide.readers.measured import Measured

# Headroom beyond the exact extra bytes before a measured plan is told to keep parameters unsharded: allocator rounding
# and the steps that were not measured. Shardguide's own line.
MARGIN = 0.05


def peak_of(s: Situation) -> Peak | None:
    """The highest measured peak of allocated memory over all ranks and files; None if none was handed over."""
    best: Peak | None = None
    for measured in s.measured:
        for entry in measured.memory:
            if entry.peak_allocated is None:
                continue
            rank = entry.rank if entry.rank is not None else 0
            found = Peak(entry.peak_allocated, entry.total_memory or 0, rank, entry.ooms or 0, entry.where)
            if best is None or (found.ooms, found.peak) > (best.ooms, best.peak):
                best = found
    return best


def reconsider(
    s: Situation, decision: Decision, layout: Layout, peak: Peak | None, whole: int
) -> tuple[Decision, Layout]:
    """Full sharding to gradient-and-optimizer sharding, where the measured headroom exceeds what it keeps (``whole`` bytes).

    Only for a strategy that was left to Shardguide, and only from a measurement without out-of-memory errors.
    """
    total = (peak.total or (s.memory.bound if s.memory else 0)) if peak else 0
    if peak is None or peak.ooms or not total or not whole or s.strategy != "auto" or layout.strategy != "full":
        return decision, layout
    left = total - peak.peak
    if left < whole + MARGIN * total:
        words = (
            f"Your measurement leaves {gib(left)} ({peak.words(s)}); keeping the parameters unsharded after forward would take "
            f"{gib(whole)} more, so full sharding stays."
        )
        return decision._replace(because=(*decision.because, words)), layout
    words = (
        f"Changed by your measurement: {peak.words(s)} leaves {gib(left)}, more than the {gib(whole)} of unsharded parameters that "
        "grad_op keeps from forward to backward; one all-gather a group is saved. Measure again."
    )
    choice = f"grad_op: gradients and optimizer state at all times, parameters between steps over all {layout.shard} data-parallel ranks"
    return decision._replace(choice=choice, because=(words, *decision.because)), layout._replace(strategy="grad_op")


def facts(measured: tuple[Measured, ...]) -> tuple[Fact, ...]:
    """The measured values, unchanged; of step times the count, the smallest, the median and the largest."""
    out: list[Fact] = []
    for number, item in enumerate(measured, 1):
        for entry in item.memory:
            rank = f"rank{entry.rank}" if entry.rank is not None else "rank"
            for field in ("peak_allocated", "peak_reserved", "total_memory", "ooms", "alloc_retries"):
                value = getattr(entry, field)
                if value is not None:
                    unit = "" if field in ("ooms", "alloc_retries") else "bytes"
                    out.append(Fact(f"measured.{number}.{rank}.{field}", value, unit, f"as measured, {entry.where}"))
        for test in item.bandwidth:
            hosts = len({device.host for device in test.devices})
            rows = [row for row in test.rows if row.out_of_place]
            if rows:
                row = max(rows, key=lambda one: one.size)
                timing = row.out_of_place
                where = f"as measured, {item.where}:{row.line}, {row.size} bytes out of place, {len(test.devices)} devices on {hosts} hosts"
                out.append(
                    Fact(
                        f"measured.{number}.{test.collective or 'test'}.busbw",
                        timing.busbw if timing else "",
                        "GB/s",
                        where,
                    )
                )
        if item.steps:
            times = sorted((float(step.time), step.time, step.unit) for step in item.steps)
            for name, one in (("min", times[0]), ("median", times[len(times) // 2]), ("max", times[-1])):
                out.append(
                    Fact(f"measured.{number}.step.{name}", one[1], one[2], f"of {len(times)} steps, {item.where}")
                )
    return tuple(out)
