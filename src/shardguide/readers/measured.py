"""What the user measured (``--measured FILE``): memory, collective bandwidth and step times, exactly as given.

Nothing is worked out from the values here, let alone extrapolated: each is typed, has its unit and its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .files import MIB, check_depth, parse_json, quoted, read_text, shown
from .nccl_tests import BandwidthTest, looks_like, read_nccl_tests
from .steps import MAX_STEPS, Step, read_lines, read_table

LIMIT = 32 * MIB
VALUES = 2_000_000
MAX_RANKS = 200_000

# torch.cuda.memory_stats() keys (torch/cuda/memory.py, 2.13) and the functions that return single ones of them. The
# same keys serve torch.xpu and torch.accelerator.
_FIELDS: dict[str, tuple[str, ...]] = {
    "peak_allocated": ("max_memory_allocated", "allocated_bytes.all.peak"),
    "peak_reserved": ("max_memory_reserved", "reserved_bytes.all.peak"),
    "peak_active": ("active_bytes.all.peak",),
    "allocated": ("memory_allocated", "allocated_bytes.all.current"),
    "reserved": ("memory_reserved", "reserved_bytes.all.current"),
    "total_memory": ("total_memory",),
    "alloc_retries": ("num_alloc_retries",),
    "ooms": ("num_ooms",),
}
_COUNTS = ("alloc_retries", "ooms")


class RankMemory(NamedTuple):
    """Memory of one rank in bytes, as its caching allocator counted it; None where the file does not say."""

    rank: int | None
    peak_allocated: int | None = None  # torch.cuda.max_memory_allocated()
    peak_reserved: int | None = None  # torch.cuda.max_memory_reserved()
    peak_active: int | None = None
    allocated: int | None = None  # at the moment of the measurement
    reserved: int | None = None
    total_memory: int | None = None  # of the device, torch.cuda.get_device_properties(i).total_memory
    alloc_retries: int | None = None  # cudaMalloc calls that failed once: the cache was flushed to go on
    ooms: int | None = None  # out-of-memory errors raised
    where: str = ""  # file and place in it


class Measured(NamedTuple):
    """Everything that one file holds."""

    where: str
    kinds: tuple[str, ...]  # of "memory", "bandwidth", "steps"
    torch: str  # release that measured, "" when not stated
    memory: tuple[RankMemory, ...]
    bandwidth: tuple[BandwidthTest, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()


def read_measured(path: str) -> Measured:
    """The measurements in a file (``-``: standard input).

    Accepted: the JSON of Shardguide's measuring snippet, ``torch.cuda.memory_stats()`` as JSON (of one rank, or by
    rank), output of nccl-tests, a step-time table or log. Raises UnusableInput.
    """
    where = shown(path)
    text = read_text(path, LIMIT, lossy=True)
    # First, since "mpirun --tag-output" begins every line with "[1,0]<stdout>:".
    bandwidth = read_nccl_tests(text, where) if looks_like(text) else ()
    if bandwidth:
        return Measured(where, ("bandwidth",), "", (), bandwidth, ())
    start = text[:200].lstrip()
    if start[:1] == "{" or (start[:1] == "[" and start[1:].lstrip()[:1] in ("{", "[", "]")):  # "[rank0] …" is a log
        return _from_json(parse_json(text, where, values=VALUES), where)
    steps = read_table(text, where) or read_lines(text, where)
    if steps:
        return Measured(where, ("steps",), "", (), (), steps)
    if not text.strip():
        raise UnusableInput(f"{where}: the file is empty.")
    hint = ""
    if "OrderedDict(" in text or "allocated_bytes" in text:
        hint = " Write memory_stats() with json.dump, not with print."
    elif "PyTorch CUDA memory summary" in text:
        hint = " Write torch.cuda.memory_stats() with json.dump instead of memory_summary()."
    raise UnusableInput(
        f"{where}: no measurement that is known: a JSON of torch.cuda.memory_stats(), nccl-tests output or a table of "
        f"step times with units.{hint}"
    )


def _flat(stats: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """memory_stats_as_nested_dict() written like memory_stats(): keys joined by dots."""
    for key, value in stats.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _memory(stats: dict[str, Any], rank: int | None, where: str) -> RankMemory | None:
    """The known values among ``stats``; None when there are none. Raises UnusableInput for impossible ones."""
    flat = dict(_flat(stats))
    found: dict[str, int] = {}
    for field, keys in _FIELDS.items():
        for key in keys:
            if flat.get(key) is None:
                continue
            value = flat[key]
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 60:
                unit = "a count" if field in _COUNTS else "a whole number of bytes"
                raise UnusableInput(f"{where}: {key} must be {unit}, as PyTorch returns it, not {quoted(value)}.")
            if field not in _COUNTS and 0 < value < 512:
                # The allocator hands out blocks of 512 bytes, so this is another unit.
                raise UnusableInput(f"{where}: {key} = {value} cannot be bytes; give the number that PyTorch returns.")
            if found.get(field, value) != value:
                raise UnusableInput(f"{where}: {' and '.join(keys)} differ.")
            found[field] = value
    return RankMemory(rank=rank, where=where, **found) if found else None


def _rank(value: Any, where: str) -> int | None:
    """A rank given as a number or as a key such as "3" or "rank3"; None when there is none."""
    if value is None:
        return None
    if isinstance(value, str):
        digits = value.lower().removeprefix("rank").strip(" _:-")
        value = int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 9 else value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**8:
        raise UnusableInput(f"{where}: {quoted(value)} is not a rank.")
    return value


def _steps(entry: dict[str, Any], rank: int | None, where: str) -> tuple[Step, ...]:
    times = entry.get("step_seconds")
    if times is None:
        return ()
    if not isinstance(times, list) or len(times) > MAX_STEPS:
        raise UnusableInput(f"{where}: step_seconds must be a list of seconds.")
    steps: list[Step] = []
    for i, seconds in enumerate(times):
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9:
            raise UnusableInput(f"{where}: step_seconds holds {quoted(seconds)}, which is not a time in seconds.")
        steps.append(Step(i, repr(seconds), "s", rank, 0))
    return tuple(steps)


def _ranks(value: Any, where: str) -> Iterator[tuple[dict[str, Any], int | None, str]]:
    """The entries of a list or object by rank, each with its rank and its place; one entry for one rank's stats."""
    if isinstance(value, list):
        for i, entry in enumerate(value):
            place = f"{where}, entry {i}"
            if not isinstance(entry, dict):
                raise UnusableInput(f"{place}: it must be an object with the values of one rank.")
            yield entry, _rank(entry.get("rank", i), place), place
    elif isinstance(value, dict):
        keys = [str(key).lower().removeprefix("rank").strip(" _:-") for key in value]
        if value and all(key.isdecimal() for key in keys) and all(isinstance(v, dict) for v in value.values()):
            for key, entry in value.items():
                place = f"{where}, {shown(key)}"
                yield entry, _rank(entry.get("rank", key), place), place
        else:
            yield value, _rank(value.get("rank"), where), where


def _from_json(value: Any, where: str) -> Measured:
    check_depth(value, where)
    if isinstance(value, dict) and "nccl_version" in value and "results" in value:
        raise UnusableInput(f"{where}: JSON of nccl-tests; hand over what the test prints instead.")
    release = value.get("torch") if isinstance(value, dict) else ""
    ranks = value["ranks"] if isinstance(value, dict) and "ranks" in value else value
    memory: list[RankMemory] = []
    steps: list[Step] = []
    seen: set[int] = set()
    for entry, rank, place in _ranks(ranks, where):
        if rank is not None:
            if rank in seen:
                raise UnusableInput(f"{place}: rank {rank} is given twice.")
            seen.add(rank)
        if len(memory) > MAX_RANKS:
            raise UnusableInput(f"{where}: more than {MAX_RANKS} ranks.")
        found = _memory(entry, rank, place)
        if found is not None:
            memory.append(found)
        steps.extend(_steps(entry, rank, place))
    if not memory and not steps:
        raise UnusableInput(
            f"{where}: none of the values that are known: max_memory_allocated, the keys of torch.cuda.memory_stats(), "
            "step_seconds."
        )
    kinds = (("memory",) if memory else ()) + (("steps",) if steps else ())
    text = release if isinstance(release, str) and release.isprintable() and len(release) < 60 else ""
    return Measured(where, kinds, text, tuple(memory), (), tuple(steps), _notes(memory))


def _notes(memory: list[RankMemory]) -> tuple[str, ...]:
    """Values that contradict each other: shown, not settled."""
    notes: list[str] = []
    for entry in memory:
        pairs = (
            ("peak_allocated", entry.peak_allocated, "peak_reserved", entry.peak_reserved),
            ("peak_reserved", entry.peak_reserved, "total_memory", entry.total_memory),
            ("peak_allocated", entry.peak_allocated, "total_memory", entry.total_memory),
        )
        for small, a, large, b in pairs:
            if a is not None and b is not None and a > b and len(notes) < 5:
                notes.append(f"{entry.where}: {small} ({a} bytes) is more than {large} ({b} bytes).")
    if memory and all(entry.peak_allocated == 0 for entry in memory):
        notes.append(
            "Every peak is 0: nothing was allocated, or the backend is cudaMallocAsync, whose statistics are 0."
        )
    return tuple(notes)
