"""Snapshots of the CUDA caching allocator, as ``torch.cuda.memory._dump_snapshot`` pickles them.

Format: ``_snapshot`` in ``torch/cuda/memory.py``, ``torch/csrc/cuda/memory_snapshot.cpp`` and ``torch/cuda/_memory_viz.py``. Up to
2.0 a block has a ``history`` instead of ``frames`` and ``requested_size``; the state of a block that waits for a stream is
written "active_pending_free" and documented as "active_awaiting_free"; ``torch.cuda.memory_snapshot()`` is the list of segments
alone. Later releases added keys (``compile_context``, ``forward_frames``, ``user_metadata``), which change nothing here.
"""

from __future__ import annotations

import json

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .allocations import Asked, asked, short_path
from .oom import Size, show
from .plain_pickle import LARGEST, loads

MOST_BLOCKS = 5_000_000
MOST_DEVICES = 1024
MOST_ENTRIES = 20_000_000
MOST_BYTES = 1 << 50
SHOWN_PLACES = 16
FRAMES = 64


class Place(NamedTuple):
    """What one place in the code holds."""

    category: str
    place: str  # the frame that says so, or the innermost Python frame
    bytes: int
    blocks: int


class OomEvent(NamedTuple):
    """An allocation that failed."""

    device: int
    requested: int
    free: int  # on the device, as the driver said
    asked: Asked
    frames: tuple[tuple[str, int, str], ...]  # innermost first, Python's only
    last: bool  # nothing was allocated or freed afterwards: the snapshot shows the moment


class Device(NamedTuple):
    """One device in the snapshot."""

    device: int
    reserved: int  # bytes in segments
    allocated: int  # bytes in blocks that tensors hold
    pending: int  # bytes in blocks that wait for another stream
    requested: int  # bytes that were asked for, before rounding; at most ``allocated``
    segments: int
    free_blocks: int
    largest_free: int  # the largest free block: what can be handed out without a new segment
    private: int  # bytes reserved in private pools
    expandable: int  # segments that can grow
    categories: tuple[tuple[str, int], ...]  # bytes that tensors hold, by who asked, the most first
    places: tuple[Place, ...]

    @property
    def unallocated(self) -> int:
        """Bytes that the allocator holds and no tensor uses."""
        return self.reserved - self.allocated - self.pending


class Snapshot(NamedTuple):
    """One process's snapshot."""

    file: str
    devices: tuple[Device, ...]
    ooms: tuple[OomEvent, ...]
    settings: dict[str, Any]  # of the allocator, where they are written: expandable_segments, max_split_size, …
    entries: int  # in the traces of events


def read(path: str) -> Snapshot:
    """A snapshot from its file, which may be compressed.

    Raises UnusableInput for a file that is cut off, damaged, hostile, or no snapshot.
    """
    from .logs.source import chunks

    parts, size = [], 0
    for part in chunks(path):
        size += len(part)
        if size > LARGEST:
            raise UnusableInput(f"{path} is larger than {LARGEST >> 20} MiB.")
        parts.append(part)
    data = b"".join(parts)
    del parts
    if data[:1] == b"\x80":
        content = loads(data, path)
    else:
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise UnusableInput(f"{path} is no whole JSON; it may have been cut off.") from None
    del data
    try:
        return _snapshot(path, content)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError):
        raise UnusableInput(f"{path} is no memory snapshot in a form that PyTorch writes.") from None


def _snapshot(path: str, content: Any) -> Snapshot:
    if isinstance(content, list):
        content = {"segments": content}
    if not isinstance(content, dict) or not isinstance(content.get("segments"), list):
        raise UnusableInput(f"{path} is no memory snapshot: it has no list of segments.")
    devices: dict[int, _Device] = {}
    who = _Who()
    blocks = 0
    for segment in content["segments"]:
        number = _number(segment.get("device", 0), path, MOST_DEVICES)
        blocks += len(segment["blocks"])
        if blocks > MOST_BLOCKS:
            raise UnusableInput(f"{path} has more than {MOST_BLOCKS:,} blocks.")
        devices.setdefault(number, _Device(number)).take(segment, who, path)
    traces = content.get("device_traces") or []
    ooms: list[OomEvent] = []
    entries = 0
    for number, trace in enumerate(traces if isinstance(traces, list) else []):
        entries += len(trace)
        if entries > MOST_ENTRIES or number > MOST_DEVICES:
            raise UnusableInput(f"{path} has more than {MOST_ENTRIES:,} entries in its traces.")
        ooms += _ooms(number, trace, path)
    settings = content.get("allocator_settings")
    kept = {}
    if isinstance(settings, dict):
        kept = {
            str(key)[:60]: value for key, value in list(settings.items())[:64] if isinstance(value, (str, int, float))
        }
    return Snapshot(path, tuple(devices[number].done() for number in sorted(devices)), tuple(ooms), kept, entries)


def _number(value: Any, path: str, most: int = MOST_BYTES) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UnusableInput(f"{path} holds a number that no GPU has: it is damaged or was made up.")
    return value


class _Who:
    """Who asked, for each stack once: blocks of one call share their list of frames."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Asked]] = {}

    def of(self, frames: Any) -> Asked:
        found = self.known.get(id(frames))
        if found is not None and found[0] is frames:
            return found[1]
        plain = frames_of(frames)
        result = asked(plain)
        if result.at < 0:
            python = [one for one in plain if one[0].endswith(".py")] or list(plain)
            if python:
                file, line, function = python[0]
                result = Asked(result.category, 0, f"{short_path(file)}:{line} in {function}"[:400])
        if len(self.known) < 1 << 20:
            self.known[id(frames)] = (frames, result)
        return result


def frames_of(frames: Any) -> tuple[tuple[str, int, str], ...]:
    """(file, line, function), innermost first; the middle of a very deep stack is left out."""
    if not isinstance(frames, (list, tuple)):
        return ()
    kept = frames if len(frames) <= 4 * FRAMES else [*frames[: 2 * FRAMES], *frames[-2 * FRAMES :]]
    out = []
    for one in kept:
        if isinstance(one, dict):
            line = one.get("line", 0)
            out.append(
                (
                    str(one.get("filename", ""))[:400],
                    line if isinstance(line, int) else 0,
                    str(one.get("name", ""))[:200],
                )
            )
    return tuple(out)


class _Device:
    """Sums over the segments of one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.reserved = self.allocated = self.pending = self.requested = 0
        self.segments = self.free_blocks = self.largest = self.private = self.expandable = 0
        self.held: dict[tuple[str, str], list[int]] = {}

    def take(self, segment: dict[str, Any], who: _Who, path: str) -> None:
        total = _number(segment["total_size"], path)
        self.segments += 1
        self.reserved += total
        pool = segment.get("segment_pool_id")
        if isinstance(pool, (list, tuple)) and any(pool):
            self.private += total
        if segment.get("is_expandable") is True:
            self.expandable += 1
        inside = 0
        for block in segment["blocks"]:
            size = _number(block["size"], path)
            inside += size
            state = block["state"]
            if state == "active_allocated":
                self._held(block, size, who, path)
            elif state in ("active_pending_free", "active_awaiting_free"):
                self.pending += size
            elif state == "inactive":
                self.free_blocks += 1
                self.largest = max(self.largest, size)
            else:
                raise UnusableInput(f"{path} has a block in a state that no known version of PyTorch writes.")
        if inside != total:
            raise UnusableInput(f"{path} has a segment whose blocks are not as large as itself; it is damaged.")

    def _held(self, block: dict[str, Any], size: int, who: _Who, path: str) -> None:
        frames = block.get("frames")
        wanted = block.get("requested_size", size)
        history = block.get("history")
        if frames is None and isinstance(history, list) and history:
            frames = history[0].get("frames")
            wanted = history[0].get("real_size", size)
        self.allocated += size
        self.requested += min(size, _number(wanted, path))
        asked_ = who.of(frames or ())
        of = self.held.setdefault((asked_.category, asked_.place), [0, 0])
        of[0] += size
        of[1] += 1

    def done(self) -> Device:
        categories: dict[str, int] = {}
        for (category, _), (size, _) in self.held.items():
            categories[category] = categories.get(category, 0) + size
        places = sorted(self.held.items(), key=lambda one: (-one[1][0], one[0]))
        return Device(
            self.device,
            self.reserved,
            self.allocated,
            self.pending,
            self.requested,
            self.segments,
            self.free_blocks,
            self.largest,
            self.private,
            self.expandable,
            tuple(sorted(categories.items(), key=lambda one: (-one[1], one[0]))),
            tuple(Place(category, place, size, count) for (category, place), (size, count) in places[:SHOWN_PLACES]),
        )


# What changes what is allocated; "snapshot" entries only say that someone looked.
_CHANGES = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)


def _ooms(device: int, trace: Any, path: str) -> list[OomEvent]:
    found: list[OomEvent] = []
    last = -1
    for index, entry in enumerate(trace):
        if entry["action"] == "oom":
            frames = frames_of(entry.get("frames"))
            python = tuple(one for one in frames if one[0].endswith(".py"))[:FRAMES]
            free = entry.get("device_free", 0)
            found.append(
                OomEvent(device, _number(entry["size"], path), _number(free, path), asked(frames), python, last=True)
            )
            last = index
    if found and any(entry["action"] in _CHANGES for entry in trace[last + 1 :]):
        found[-1] = found[-1]._replace(last=False)
    return [*(one._replace(last=False) for one in found[:-1]), *found[-1:]][-64:]


def sized(size: int) -> Size:
    """A number of bytes with its text."""
    return Size(size, show(size))
