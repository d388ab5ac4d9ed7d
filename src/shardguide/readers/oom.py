"""Out-of-memory messages of PyTorch's caching allocators, in all their wordings since 2.0, as numbers.

Wordings: ``c10/cuda/CUDACachingAllocator.cpp`` ("(GPU 0; 23.69 GiB total capacity; …)" up to 2.0, "GPU 0 has a total capacity of …"
since 2.1, first with "capacty"), its ROCm and XPU forms, MPS, and what Ascend's plug-in prints. PyTorch rounds to two
decimals; the bytes here are what is printed, so they may be off by half a unit of the last decimal.
"""

from __future__ import annotations

import re

from shardguide.guidance.hints import NamedTuple

_SIZE = r"(\d{1,7}(?:\.\d{1,4})?)\s*(bytes|KiB|MiB|GiB|TiB)"
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MARK = "out of memory"
_HEAD = re.compile(
    rf"\b([A-Z][A-Za-z]{{1,9}})(?: backend)? out of memory\b.{{0,240}}?Tried to allocate\s+{_SIZE}", re.DOTALL
)
_DEVICE = re.compile(r"(?:GPU|NPU|XPU|Device)\s+(\d{1,4})(?:;| has a total)")
_ONE = {
    "capacity": (rf"has a total capaci?ty of {_SIZE}", rf"{_SIZE} total capacity"),
    "free": (rf"of which {_SIZE} is free", rf"{_SIZE} free\b"),
    "allowed": (rf"{_SIZE} allowed\b", rf"max allowed: {_SIZE}"),
    "process": (rf"this process has {_SIZE} memory in use",),
    "allocated": (rf"Of the allocated memory {_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated", rf"MPS allocated: {_SIZE}"),
    "pools": (rf"with {_SIZE} allocated in private pools",),
    "unallocated": (rf"{_SIZE} is reserved by PyTorch but unallocated",),
    "reserved": (rf"{_SIZE} reserved in total by PyTorch",),
}  # fmt: skip
_OTHERS = re.compile(rf"Process (\d{{1,10}}) has {_SIZE} memory in use")
_RAW = re.compile(r"(CUDA|HIP) error: out of memory|Cuda failure(?: \d+)? 'out of memory'")


class Size(NamedTuple):
    """A size as it is printed."""

    bytes: int
    text: str  # "39.59 GiB"


class Oom(NamedTuple):
    """One message. None for what it does not say."""

    backend: str  # "CUDA", "HIP", "XPU", "NPU", "MPS"
    device: int | None
    requested: Size
    capacity: Size | None = None  # of the device
    free: Size | None = None  # on the device, as the driver says
    allowed: Size | None = None  # by set_per_process_memory_fraction, where it was set
    process: Size | None = None  # held by this process, with what is not PyTorch's
    allocated: Size | None = None  # by tensors
    pools: Size | None = None  # of it in private pools, such as those of CUDA graphs
    unallocated: Size | None = None  # reserved by PyTorch's allocator and not in use
    others: tuple[tuple[int, Size], ...] = ()  # processes that the driver names: (PID as seen by it, bytes)

    @property
    def reserved(self) -> int | None:
        """Bytes that PyTorch's allocator holds."""
        if self.allocated is None or self.unallocated is None:
            return None
        return self.allocated.bytes + self.unallocated.bytes


def parse(text: str) -> Oom | None:
    """The first out-of-memory message in a text; None where there is none."""
    text = " ".join(text[:4000].split())
    head = _HEAD.search(text)
    if head is None:
        return None
    body = text[head.start() :]
    found = {name: _first(patterns, body) for name, patterns in _ONE.items()}
    device = _DEVICE.search(body)
    reserved = found.pop("reserved")
    allocated = found["allocated"]
    if found["unallocated"] is None and reserved is not None and allocated is not None:
        # The old wording gives the sum. Both are rounded, so the difference can come out below zero.
        left = max(0, reserved.bytes - allocated.bytes)
        found["unallocated"] = Size(left, show(left))
    return Oom(
        head[1],
        int(device[1]) if device else None,
        _size(head[2], head[3]),
        others=tuple((int(one[1]), _size(one[2], one[3])) for one in list(_OTHERS.finditer(body))[:64]),
        **found,
    )


def _first(patterns: tuple[str, ...], text: str) -> Size | None:
    for pattern in patterns:
        found = re.search(pattern, text)
        if found:
            return _size(found[1], found[2])
    return None


def _size(number: str, unit: str) -> Size:
    whole, _, part = number.partition(".")
    scale = 10 ** len(part)
    # Exact: no float comes between what is printed and the bytes.
    return Size((int(whole + part) * _UNITS[unit] + scale // 2) // scale, f"{number} {unit}")


def show(size: int) -> str:
    """A number of bytes as PyTorch prints it."""
    for unit in ("GiB", "MiB", "KiB"):
        if size > _UNITS[unit]:
            return f"{size / _UNITS[unit]:.2f} {unit}"
    return f"{size} bytes"


class Summary(NamedTuple):
    """``torch.cuda.memory_summary()``: values are cut down to the unit that it chose, so each holds to within one unit."""

    device: int
    ooms: int
    retries: int
    allocated: Size | None
    reserved: Size | None
    unreleasable: Size | None  # free parts of segments that are partly in use
    peak_allocated: Size | None
    peak_reserved: Size | None


_SUMMARY = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,4})")
_COUNTS = re.compile(r"CUDA OOMs:\s*(\d{1,12})\s*\|\s*cudaMalloc retries:\s*(\d{1,12})")
_ROW = re.compile(
    r"\|\s*(Allocated memory|GPU reserved memory|Non-releasable memory)\s*\|\s*(\d{1,12}) (B|KiB|MiB|GiB|TiB|PiB)\s*"
    r"\|\s*(\d{1,12}) (B|KiB|MiB|GiB|TiB|PiB)\s*\|"
)
_TABLE = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "PiB": 50}


def summary(text: str) -> Summary | None:
    """The first memory summary in a text."""
    head = _SUMMARY.search(text)
    if head is None:
        return None
    body = text[head.end() : head.end() + 8000]
    counts = _COUNTS.search(body)
    rows: dict[str, tuple[Size, Size]] = {}
    for row in _ROW.finditer(body):
        rows.setdefault(row[1], (_row(row[2], row[3]), _row(row[4], row[5])))
    nothing = (None, None)
    allocated, peak = rows.get("Allocated memory", nothing)
    reserved, peak_reserved = rows.get("GPU reserved memory", nothing)
    return Summary(
        int(head[1]),
        int(counts[1]) if counts else 0,
        int(counts[2]) if counts else 0,
        allocated,
        reserved,
        rows.get("Non-releasable memory", nothing)[0],
        peak,
        peak_reserved,
    )


def _row(number: str, unit: str) -> Size:
    return Size(int(number) << _TABLE[unit], f"{int(number)} {unit}")
