"""What the user measured, put to use: the peak that closes decisions, and facts shown exactly as they were given."""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple
from shardguide.guidance.record import Fact

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
            rank = entry.rank if entry.rank is not None else -1
            found = Peak(
                entry.peak_allocated,
                entry.total_memory or 0,
                rank,
                entry.ooms or 0,
                entry.alloc_retries or 0,
                entry.where,
            )
            if best is None or (found.ooms, found.peak) > (best.ooms, best.peak):
                best = found
    return best


def of_another_run(s: Situation, peak: Peak, held: int) -> str:
    """Why a measurement cannot be of this plan; "" if nothing says so. ``held`` is what the plan's heaviest rank holds."""
    ranks = {entry.rank for measured in s.measured for entry in measured.memory if entry.rank is not None}
    if s.world and ranks and max(ranks) >= s.world:
        return f"{peak.where} has rank {max(ranks)}, and this plan has {s.world} ranks"
    if peak.peak < held and not peak.ooms:
        return f"{peak.where} has a peak of {gib(peak.peak)}, and this plan's shards alone are {gib(held)}"
    return ""


def change(s: Situation, layout: Layout, held: int, peak: Peak | None, whole: int, full: int) -> tuple[str, str]:
    """(strategy, why) where the measurement changes the strategy that was left to Shardguide, else ("", why not).

    ``held`` are the bytes of the chosen layout's heaviest rank, ``full`` those under full sharding, ``whole`` the unsharded
    parameters that grad_op keeps from forward to backward.
    """
    total = (peak.total or (s.memory.bound if s.memory else 0)) if peak else 0
    if peak is None or not total or s.strategy != "auto":
        return "", ""
    short = peak.short(s)
    if short and layout.strategy in ("hybrid", "none") and full < held:
        return "full", (
            f"Changed by your measurement: it is short ({peak.pressure(s)}), and full sharding spares {gib(held - full)} of states on each "
            "rank. Measure again."
        )
    if layout.strategy != "full" or not whole:
        return "", ""
    if short:
        return (
            "",
            f"Your measurement is short ({peak.pressure(s)}), so the parameters are not kept unsharded after forward: full sharding stays.",
        )
    left = total - peak.peak
    if left < whole + MARGIN * total:
        room = f"leaves {gib(left)}" if left > 0 else "leaves nothing"
        return "", (
            f"Your measurement ({peak.words(s)}) {room}; keeping the parameters unsharded after forward would take {gib(whole)} "
            "more, so full sharding stays. (If it was measured with grad_op already, say --strategy grad_op.)"
        )
    return "grad_op", (
        f"Changed by your measurement: {peak.words(s)} leaves {gib(left)}, more than the {gib(whole)} of unsharded parameters that "
        "grad_op keeps from forward to backward; one all-gather a group is saved. Measure again."
    )


class Links(NamedTuple):
    """Bus bandwidth of gathers as nccl-tests printed it (GB/s), at the largest message: within a host and across hosts."""

    within: float
    across: float
    where: str

    @property
    def slower(self) -> bool:
        """Whether the network is clearly the slower one; a tenth is within what runs differ by (Shardguide's own line)."""
        return self.across < 0.9 * self.within

    def words(self) -> str:
        """Both values with their place."""
        return f"bus bandwidth {self.within:g} GB/s within a host, {self.across:g} GB/s across hosts, {self.where}"


def links(s: Situation) -> Links | None:
    """What the user measured of both links with the same collective; None unless both are there."""
    found: dict[tuple[str, bool], tuple[float, str]] = {}
    for measured in s.measured:
        for test in measured.bandwidth:
            rows = [row for row in test.rows if row.out_of_place]
            hosts = len({device.host for device in test.devices})
            if not rows or not hosts or test.collective not in ("all_gather", "reduce_scatter"):
                continue
            row = max(rows, key=lambda one: one.size)
            value = float(row.out_of_place.busbw) if row.out_of_place else 0.0
            found[test.collective, hosts > 1] = (value, f"{measured.where}:{row.line}")
    for name in ("all_gather", "reduce_scatter"):
        one, many = found.get((name, False)), found.get((name, True))
        if one and many:
            return Links(one[0], many[0], f"{one[1]} and {many[1]}")
    return None


def unused(s: Situation) -> list[str]:
    """For each measurement that decided nothing: why, and what would."""
    out = []
    for measured in s.measured:
        if measured.memory and any(entry.peak_allocated is not None for entry in measured.memory):
            continue
        if measured.bandwidth and links(s) is None:
            out.append(
                f"{measured.where} changes nothing: the choice of hybrid sharding compares all_gather or reduce_scatter within one "
                "host with the same test across hosts (two files of nccl-tests, each with its list of devices)."
            )
        elif measured.steps and not measured.bandwidth:
            out.append(
                f"{measured.where} changes nothing by itself: step times are shown as given. Measure another form of the plan the "
                "same way and compare; peak memory (snippet 'measure') closes what is open."
            )
    return out


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
