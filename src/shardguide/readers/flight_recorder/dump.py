"""One rank's Flight Recorder dump, reduced to what alignment over ranks needs.

Formats: the entries that ``torch/csrc/distributed/c10d/FlightRecorder`` writes, as read by
``torch/distributed/flight_recorder/components`` (2.13) and its predecessors in ``tools/flight_recorder``: ``seq_id`` before
``collective_seq_id``, ``pg_id`` alone before ``process_group``, frames by index into a table, numbers or "None" for times that
were not seen, Gloo's ``pg_config`` under an empty name, and the JSON form without frames.
"""

from __future__ import annotations

import json
import re
import sys

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from ..logs.source import CHUNK, opened
from ..plain_pickle import LARGEST, loads

MOST_ENTRIES = 1_000_000
FRAMES = 24
# Characters that sizes and types may become: a pickle can refer to one list again and again, and grow without end as text.
MOST_TEXT = 1 << 22
TEXT_PER_BYTE = 4
STATES = {"scheduled": 0, "started": 1, "completed": 2}


class Status(NamedTuple):
    """How far a group has come on a rank; -1 where it is not known."""

    enqueued: int
    started: int
    completed: int


class Op(NamedTuple):
    """What has to agree between the ranks of a collective."""

    name: str  # "all_reduce"
    input_sizes: str
    output_sizes: str
    input_dtypes: str
    output_dtypes: str


class Last(NamedTuple):
    """An entry that was not complete when the dump was made."""

    group: str
    seq: int
    op: Op
    state: str
    created: int  # nanoseconds since 1970
    frames: tuple[tuple[str, int, str], ...]  # (file, line, function), innermost first


class Dump(NamedTuple):
    """One rank's dump."""

    file: str
    rank: int | None
    version: str
    groups: dict[str, tuple[str, tuple[int, ...]]]  # name -> (description, ranks; empty where they are not said)
    status: dict[str, Status]
    ops: dict[str, dict[int, int]]  # group -> sequence number -> index into ``kinds``
    kinds: tuple[Op, ...]
    open: tuple[Last, ...]  # not complete, in the order in which they were issued
    latest: dict[str, Last]  # group -> its last entry
    entries: int
    wrapped: bool  # older entries were overwritten


def is_dump(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a dump: a pickle or JSON object with its names."""
    if head[:1] == b"\x80":
        return b"version" in head[:64] or b"entries" in head[:4096] or b"pg_config" in head[:256]
    return head.lstrip()[:1] == b"{" and (
        b'"entries"' in head and (b'"comm_lib_version"' in head or b"_seq_id" in head)
    )


def read(path: str) -> Dump:
    """A dump from its file.

    Raises UnusableInput for a file that is cut off, damaged, hostile, or no dump.
    """
    try:
        size, pieces = 0, []
        with opened(path) as file:
            while size <= LARGEST and (piece := file.read(CHUNK)):
                pieces.append(piece)
                size += len(piece)
        data = b"".join(pieces)
    except OSError as error:
        raise UnusableInput(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    if len(data) > LARGEST:
        raise UnusableInput(f"{path} is larger than {LARGEST >> 20} MiB.")

    def made(content: Any) -> Dump:
        if isinstance(content, dict) and "entries" not in content and isinstance(content.get("nccl_trace"), dict):
            content = content["nccl_trace"]
        return _dump(path, content, MOST_TEXT + TEXT_PER_BYTE * len(data))

    if data[:1] == b"\x80":
        dump: Dump = loads(data, path, made)
        return dump
    try:
        return made(json.loads(data))
    except (ValueError, RecursionError):
        raise UnusableInput(f"{path} is no whole JSON; the dump may have been cut off.") from None


def _dump(path: str, content: Any, most: int) -> Dump:
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise UnusableInput(f"{path} is no Flight Recorder dump: it has no list of entries.")
    entries = content["entries"]
    if len(entries) > MOST_ENTRIES:
        raise UnusableInput(f"{path} has more than {MOST_ENTRIES:,} entries.")
    table = content.get("stack_frames") or content.get("frames") or {}
    groups = _groups(content.get("pg_config"))
    ops: dict[str, dict[int, int]] = {}
    kinds: dict[Op, int] = {}
    open_: list[Last] = []
    latest: dict[str, tuple[dict[str, Any], int, Op]] = {}
    first = None
    # The same sizes and types come again in every step: they are turned into text once.
    texts: dict[Any, Op] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise UnusableInput(f"{path} is no Flight Recorder dump: an entry is not an object.")
        try:
            group, seq, op, done = _entry(entry, texts, groups)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            raise UnusableInput(f"{path} has an entry that no known version of the Flight Recorder writes.") from None
        if first is None:
            first = entry.get("record_id", entry.get("id", 0))
        most -= len(op[0]) + len(op[1]) + len(op[2]) + len(op[3]) + len(op[4])
        if most < 0:
            raise UnusableInput(f"{path} has sizes that no tensor has: it was made up, and is not read.")
        index = kinds.setdefault(op, len(kinds))
        ops.setdefault(group, {})[seq] = index
        latest[group] = (entry, seq, op)
        if not done:
            open_.append(_last(entry, group, seq, op, table))
            if len(open_) > 4096:
                del open_[2048]
    return Dump(
        path,
        rank_of(path, content),
        _word(content.get("version", ""))[:40],
        groups,
        _status(content.get("pg_status")),
        ops,
        tuple(kinds),
        tuple(open_),
        {name: _last(entry, name, seq, op, table) for name, (entry, seq, op) in latest.items()},
        len(entries),
        bool(first),
    )


def rank_of(path: str, content: Any) -> int | None:
    """The rank: said by the dump, else the number at the end of the file's name, as PyTorch writes it."""
    said = content.get("rank")
    if isinstance(said, int) and 0 <= said < 1 << 24:
        return said
    found = re.search(r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin))?$", path)
    return int(found[1]) if found else None


def _groups(config: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    groups: dict[str, tuple[str, tuple[int, ...]]] = {}
    if isinstance(config, dict):
        for name, value in config.items():
            if not isinstance(value, dict) or not isinstance(name, str) or not name:
                continue  # Gloo writes one group without a name, and without ranks
            groups[name] = (_word(value.get("desc", ""))[:200], _members(value.get("ranks")))
    return groups


# Every rank writes the members of its groups out, the default group's among them: a job of ten thousand ranks says ten thousand
# numbers ten thousand times. The same text is read once.
_known: dict[str, tuple[int, ...]] = {}
_REMEMBERED = 1 << 14


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        text = ranks[: 1 << 20]
        found = _known.get(text)
        if found is None:
            found = tuple(sorted({int(one) for one in re.findall(r"\d{1,9}", text)}))
            if len(_known) >= _REMEMBERED or len(text) > 1 << 18:
                _known.clear()
            _known[text] = found
        return found
    return tuple(sorted({one for one in ranks if isinstance(one, int)})) if isinstance(ranks, list) else ()


def _status(config: Any) -> dict[str, Status]:
    out: dict[str, Status] = {}
    if isinstance(config, dict):
        for name, value in config.items():
            if isinstance(value, dict):
                out[_word(name)] = Status(
                    *(_number(value.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed"))
                )
    return out


def _number(value: Any) -> int:
    if isinstance(value, str):
        value = int(value) if re.fullmatch(r"-?\d{1,18}", value) else -1
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _word(value: Any) -> str:
    """A name as text. What holds other values has no business here, and could grow without end as text."""
    return value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else ""


def _entry(entry: dict[str, Any], texts: dict[Any, Op], groups: Any) -> tuple[str, int, Op, bool]:
    """Group, sequence number, what must agree, and whether it is complete."""
    named = entry.get("process_group")
    group = sys.intern(_word(named[0])) if named else _word(entry["pg_id"])
    if named and group not in groups:
        groups[group] = (_word(named[1])[:200] if len(named) > 1 else "", ())
    seq: Any = entry.get("collective_seq_id", entry.get("seq_id"))
    name = entry["profiling_name"]
    if entry.get("is_p2p") or ":send" in name or ":recv" in name:
        seq = -int(entry.get("p2p_seq_id") or seq or 0) - 1  # counted on its own: kept apart below zero
    sizes_in, sizes_out = entry.get("input_sizes"), entry.get("output_sizes")
    key = (name, str(sizes_in), str(sizes_out), str(entry.get("input_dtypes")), str(entry.get("output_dtypes")))
    op = texts.get(key)
    if op is None:
        op = texts[key] = Op(name.partition(":")[2] or name, *key[1:])
    return group, int(seq), op, entry.get("state") == "completed" or bool(entry.get("retired"))


def _last(entry: dict[str, Any], group: str, seq: int, op: Op, table: Any) -> Last:
    frames = entry.get("frames") or ()
    if (
        isinstance(table, (dict, list))
        and isinstance(frames, (list, tuple))
        and frames
        and isinstance(frames[0], (int, str))
    ):
        frames = [_at(table, one) for one in frames]
    kept = []
    for one in frames[:FRAMES] if isinstance(frames, (list, tuple)) else ():
        if isinstance(one, dict):
            kept.append(
                (_word(one.get("filename", ""))[:400], _number(one.get("line")), _word(one.get("name", ""))[:200])
            )
    return Last(group, seq, op, _word(entry.get("state", ""))[:40], _number(entry.get("time_created_ns")), tuple(kept))


def _at(table: Any, index: Any) -> Any:
    try:
        return table[int(index)] if isinstance(table, list) else table.get(str(index), table.get(index))
    except (IndexError, ValueError, TypeError):
        return None
