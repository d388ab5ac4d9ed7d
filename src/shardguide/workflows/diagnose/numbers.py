"""What the numbers in a message decide, where the same words stand for opposite causes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shardguide.readers.logs.records import Evidence

from .match import Candidate

_JOINED = re.compile(r"world_size=(?P<size>\d+), (?:num_workers_joined|worker_count)=(?P<joined>\d+)")
_METADATA = re.compile(
    r"(?P<which>saved|recomputed) metadata: \{'shape': torch\.Size\(\[(?P<shape>[\d, ]*)\]\), 'dtype': torch\.(?P<dtype>\w+)"
)
_STORE = frozenset({"store_reuse", "store_barrier_rank_missing"})
_RECOMPUTE = frozenset(
    {"fsdp2_fp32_buffers_in_ac", "ac_context_manager_exited", "ac_nonreentrant_metadata_check", "ac_param_freed_in_recompute"}
)  # fmt: skip
_HALF = ("bfloat16", "float16")

Metadata = tuple[tuple[int, ...], str]


def decided(found: Sequence[Candidate], logs: Sequence[Evidence]) -> list[Candidate]:
    """The candidates without those that the numbers contradict; what they speak for is likely at least."""
    names = {one.diagnosis.id for one in found}
    kept: dict[str, bool] = {}
    if names & _STORE:
        name = _store(logs)
        if name:
            kept |= {one: one == name for one in _STORE}
    if len(names & _RECOMPUTE) > 1:
        named = {_recompute(saved, again) for saved, again in _pairs(logs)} - {""}
        # Several tensors that point to different causes decide nothing.
        if len(named) == 1:
            name = named.pop()
            if name in names:
                kept |= {one: one == name for one in _RECOMPUTE}
    return [
        one._replace(confidence="likely") if kept.get(one.diagnosis.id) and one.confidence == "possible" else one
        for one in found
        if kept.get(one.diagnosis.id, True)
    ]


def _store(logs: Sequence[Evidence]) -> str:
    """More ranks in the store than the job has were counted before; fewer are still to come."""
    for log in logs:
        for event in log.events:
            match = _JOINED.search(event.text)
            if match:
                return "store_reuse" if int(match["joined"]) > int(match["size"]) else "store_barrier_rank_missing"
    return ""


def _pairs(logs: Sequence[Evidence]) -> Iterator[tuple[Metadata, Metadata]]:
    """What was saved and what was recomputed of each tensor, rank by rank."""
    for log in logs:
        saved: dict[int | None, Metadata] = {}
        done: set[tuple[int, str]] = set()
        for event in log.events:
            match = _METADATA.search(event.text)
            # A line has one event for each of its known words.
            if match is None or (event.line, match["which"]) in done:
                continue
            done.add((event.line, match["which"]))
            value = tuple(int(size) for size in match["shape"].split(",") if size.strip()), match["dtype"]
            if match["which"] == "saved":
                saved[event.rank] = value
            elif event.rank in saved:
                yield saved.pop(event.rank), value


def _recompute(saved: Metadata, again: Metadata) -> str:
    """The diagnosis that one tensor speaks for; "" where it is none of them."""
    before, after = saved[0], again[0]
    if before == after:
        low_to_full = saved[1] in _HALF and again[1] == "float32"
        return (
            "fsdp2_fp32_buffers_in_ac" if low_to_full else "ac_context_manager_exited" if saved[1] != again[1] else ""
        )
    if 0 in after and 0 not in before:
        return "ac_param_freed_in_recompute"
    if len(before) != len(after):
        return ""
    differing = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    if len(differing) != 1:
        return ""
    one, other = differing[0]
    if not one or not other:
        return ""
    if one % other == 0:
        return "ac_context_manager_exited"
    return "ac_nonreentrant_metadata_check" if other % one == 0 else ""
