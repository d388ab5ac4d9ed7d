"""Memory snapshots and allocator statistics: what holds the memory, exactly, and what that says about an allocation that failed."""

from __future__ import annotations

from collections.abc import Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Fact
from shardguide.knowledge import diagnosis_store
from shardguide.readers.allocations import NO_STACK, TITLES
from shardguide.readers.logs.records import Evidence
from shardguide.readers.logs.scan import rank_of_file
from shardguide.readers.memory_snapshot import Device, OomEvent, Snapshot, read, sized
from shardguide.readers.oom import Oom, show, summary

from .alignment import own_frame
from .files import Input
from .match import Candidate, Shown
from .memory import FRAGMENTED, FULL, Case, causes
from .merge import once

# Shardguide's own lines: from which share of all tensors on one category is what fills the GPU.
DOMINATES = 0.5
MANY = 0.25
_ACTIVATIONS = ("forward", "recompute", "loss")
MOST_FACTS = 8  # files of which every number is shown
SUMMARY_WORDS = (
    "PyTorch CUDA memory summary",
    "| Allocated memory ",
    "| GPU reserved memory ",
    "| Non-releasable memory ",
)


def from_snapshots(inputs: Sequence[Input]) -> tuple[list[Candidate], list[Fact], list[str]]:
    """Candidates, numbers, and which files could not be read."""
    found: list[Candidate] = []
    facts: list[Fact] = []
    damaged: list[str] = []
    for index, one in enumerate(inputs):
        try:
            snapshot = read(one.path)
        except UnusableInput as error:
            if one.named and len(inputs) == 1:
                raise
            damaged.append(str(error))
            continue
        rank = rank_of_file(one.path)
        if index < MOST_FACTS:
            facts += _facts(snapshot, rank)
        found += _causes(snapshot, rank)
    return once(found), facts, damaged


def _causes(snapshot: Snapshot, rank: int | None) -> list[Candidate]:
    """What the last failed allocation of each device shows. Without one, full memory is no failure."""
    out = []
    ranks = () if rank is None else (rank,)
    by_device = {one.device: one for one in snapshot.devices}
    last = {event.device: event for event in snapshot.ooms}
    for number, event in sorted(last.items()):
        device = by_device.get(number)
        if device is None:
            continue
        oom = Oom(
            "CUDA",
            number,
            sized(event.requested),
            free=sized(event.free),
            allocated=sized(device.allocated),
            unallocated=sized(device.unallocated),
        )
        head = f"GPU {number}: {show(event.requested)} asked for and refused, {show(event.free)} free on the device"
        if event.asked.place:
            head += f"; asked for by {event.asked.place}"
        place = own_frame(event.frames)
        case = Case(oom, event.asked, rank, snapshot.file, 0, head, place)
        sure = {one.id: (one.confidence, one.why, one.weight) for one in causes(case)}
        if "fragmentation" in sure:
            sure["fragmentation"] = _pieces(snapshot, device, event, *sure["fragmentation"])
        for name, why in _dominant(device):
            sure[name] = ("likely", why, 4.5)
        visible = device.reserved + event.free
        if device.allocated >= FULL * visible:
            share = f"{show(device.allocated)} of {show(visible)} that PyTorch holds or could have had"
            sure["oom_capacity"] = ("likely", f"tensors hold {share}: {_breakdown(device)}", 1)
        for name, (confidence, why, weight) in sure.items():
            shown = [Shown(snapshot.file, 0, head)]
            if why:
                shown.append(Shown(snapshot.file, 0, why))
            out.append(
                Candidate(
                    diagnosis_store.get(name), confidence, ranks, tuple(shown), weight, (snapshot.file, number), place
                )
            )
    return out


def _pieces(
    snapshot: Snapshot, device: Device, event: OomEvent, confidence: str, why: str, weight: float
) -> tuple[str, str, float]:
    """Fragmentation, with the largest free block: the message alone does not know it."""
    why += f"; the largest of {device.free_blocks} free blocks has {show(device.largest_free)}, in {device.segments} segments"
    if not event.last:
        return "possible", f"{why} (when the snapshot was made, which was later)", weight
    if snapshot.settings.get("expandable_segments") is True:
        # Segments that grow leave little between blocks of one stream: what is idle belongs to another stream or pool.
        return "possible", f"{why}; expandable_segments is on", weight
    enough = device.unallocated >= FRAGMENTED * device.reserved
    if enough and device.largest_free < event.requested and not device.private:
        confidence = "certain"
    return confidence, why, weight


def _dominant(device: Device) -> list[tuple[str, str]]:
    """Categories that fill the GPU, as diagnoses."""
    held = dict(device.categories)
    known = device.allocated - held.get(NO_STACK, 0)
    if known < DOMINATES * device.allocated or not device.allocated:
        return []
    out = []
    activations = sum(held.get(name, 0) for name in _ACTIVATIONS)
    if activations >= DOMINATES * device.allocated:
        out.append(("oom_activations", f"{_part(activations, device)} come from forward: {_breakdown(device)}"))
    for category, name in (("all_gather", "oom_all_gather_buffers"), ("reduce_scatter", "oom_reduce_scatter_buffers")):
        if held.get(category, 0) >= MANY * device.allocated:
            out.append((name, f"{_part(held[category], device)} are {TITLES[category]}: {_breakdown(device)}"))
    return out


def _part(size: int, device: Device) -> str:
    return f"{show(size)} of {show(device.allocated)} that tensors hold ({100 * size / device.allocated:.0f} %)"


def _breakdown(device: Device) -> str:
    return ", ".join(f"{TITLES[name]} {show(size)}" for name, size in device.categories[:4])


def _facts(snapshot: Snapshot, rank: int | None) -> list[Fact]:
    out: list[Fact] = []
    of = f"rank{rank}." if rank is not None else ""
    for device in snapshot.devices:
        name = f"memory.{of}gpu{device.device}"
        where = snapshot.file
        numbers = (
            ("reserved", device.reserved, f"sum of total_size over {device.segments} segments"),
            ("allocated", device.allocated, "sum of size over blocks active_allocated"),
            ("pending", device.pending, "sum of size over blocks that wait for a stream"),
            ("unallocated", device.unallocated, "reserved - allocated - pending"),
            ("rounding", device.allocated - device.requested, "size - requested_size over allocated blocks"),
            ("largest_free", device.largest_free, f"largest of {device.free_blocks} inactive blocks"),
            ("private_pools", device.private, "total_size of segments in private pools"),
        )
        out += [Fact(f"{name}.{key}", value, "bytes", f"{formula}, {where}") for key, value, formula in numbers]
        out += [
            Fact(
                f"{name}.by.{category}", size, "bytes", f"allocated blocks whose stack says {TITLES[category]}, {where}"
            )
            for category, size in device.categories
        ]
        out += [
            Fact(f"{name}.place{at}", place.bytes, "bytes", f"{place.blocks} blocks from {place.place}, {where}")
            for at, place in enumerate(device.places[:5])
            if place.place
        ]
    for at, event in enumerate(snapshot.ooms[-4:]):
        name = f"memory.{of}oom{at}"
        out.append(
            Fact(f"{name}.requested", event.requested, "bytes", f"size of the failed allocation, {snapshot.file}")
        )
        out.append(
            Fact(f"{name}.device_free", event.free, "bytes", f"device_free of the failed allocation, {snapshot.file}")
        )
    return out


def from_stats(inputs: Sequence[Input]) -> tuple[list[Candidate], list[Fact], list[str]]:
    """``memory_stats()`` as JSON, of one rank or several."""
    from shardguide.readers.measured import read_measured

    facts: list[Fact] = []
    damaged: list[str] = []
    shown: list[Shown] = []
    ranks: set[int] = set()
    for one in inputs:
        try:
            measured = read_measured(one.path)
        except UnusableInput as error:
            if one.named and len(inputs) == 1:
                raise
            damaged.append(str(error))
            continue
        for entry in measured.memory:
            rank = entry.rank if entry.rank is not None else rank_of_file(one.path)
            if entry.alloc_retries:
                text = f"num_alloc_retries {entry.alloc_retries}, num_ooms {entry.ooms or 0}"
                shown.append(Shown(one.path, 0, text if rank is None else f"rank {rank}: {text}"))
                if rank is not None:
                    ranks.add(rank)
            if len(facts) < 256:
                name = "stats" if rank is None else f"stats.rank{rank}"
                for field in ("peak_allocated", "peak_reserved", "allocated", "reserved", "total_memory"):
                    value = getattr(entry, field)
                    if value is not None:
                        facts.append(Fact(f"{name}.{field}", value, "bytes", f"as measured, {entry.where}"))
                for field in ("alloc_retries", "ooms"):
                    value = getattr(entry, field)
                    if value is not None:
                        facts.append(Fact(f"{name}.{field}", value, "", f"as measured, {entry.where}"))
    return _retries(shown, ranks), facts, damaged


def from_summaries(logs: Sequence[Evidence]) -> tuple[list[Candidate], list[Fact]]:
    """``memory_summary()`` tables, and lines about flushed caches, in logs."""
    facts: list[Fact] = []
    shown: list[Shown] = []
    ranks: set[int] = set()
    for log in logs:
        for event in log.events:
            flushed = "pytorch allocator cache flushes since last step" in event.text
            counted = (
                summary("PyTorch CUDA memory summary, device ID 0 " + event.text)
                if "cudaMalloc retries:" in event.text
                else None
            )
            if flushed or (counted is not None and counted.retries):
                shown.append(Shown(event.file, event.line, event.text))
                ranks |= {event.rank} if event.rank is not None else set()
        rows = [event for event in log.events if any(word in event.text for word in (*SUMMARY_WORDS, "CUDA OOMs:"))]
        heads = [at for at, event in enumerate(rows) if SUMMARY_WORDS[0] in event.text]
        for number, at in enumerate(heads[:MOST_FACTS]):
            end = heads[number + 1] if number + 1 < len(heads) else len(rows)
            table = summary("\n".join(event.text for event in rows[at:end]))
            if table is None:
                continue
            name = f"summary{number}.gpu{table.device}"
            where = f"{log.file}:{rows[at].line}"
            for field in ("allocated", "reserved", "unreleasable", "peak_allocated", "peak_reserved"):
                size = getattr(table, field)
                if size is not None:
                    value, unit = size.text.split(" ")
                    facts.append(Fact(f"{name}.{field}", value, unit, f"as printed, cut to whole {unit}, {where}"))
            facts.append(Fact(f"{name}.ooms", table.ooms, "", f"as printed, {where}"))
            facts.append(Fact(f"{name}.retries", table.retries, "", f"as printed, {where}"))
    return _retries(shown, ranks), facts


def _retries(shown: list[Shown], ranks: set[int]) -> list[Candidate]:
    if not shown:
        return []
    first = shown[0]
    evidence = tuple(dict.fromkeys(shown))[:6]
    return [
        Candidate(
            diagnosis_store.get("allocator_retries"),
            "likely",
            tuple(sorted(ranks)),
            evidence,
            1,
            (first.file, first.line),
        )
    ]
