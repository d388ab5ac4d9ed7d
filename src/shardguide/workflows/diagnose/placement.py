"""Which GPU each process took, and how the GPUs reach each other, as NCCL's and accelerate's start-up lines tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import diagnosis_store
from shardguide.readers.logs.records import Event, Evidence

from .match import Candidate, Shown

_INIT = re.compile(
    r"(?P<host>\S+?):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO .*?\brank (?P<rank>\d+) nranks (?P<of>\d+) cudaDev \d+ "
    r".*?busId (?P<bus>[\da-fA-F]+)(?: commId (?P<comm>0x[\da-f]+))?"
)
_LOCAL = re.compile(r"Local process index: (?P<local>\d+)\s*$")
_DEVICE = re.compile(r"Device: cuda:(?P<device>\d+)\s*$")
_FIRST = re.compile(r"collective operation timeout: WorkNCCL\(SeqNum=1,")


class _Placed(NamedTuple):
    """One process of a communicator."""

    pid: str
    rank: int
    event: Event


def from_logs(logs: Sequence[Evidence]) -> list[Candidate]:
    """Two processes on one GPU, more processes than GPUs, and a first collective that stands still over peer-to-peer access."""
    events = [event for log in logs for event in log.events]
    return [*_shared(events), *_fewer(events), *_peer_to_peer(events)]


def _shared(events: Iterable[Event]) -> list[Candidate]:
    """NCCL names host, process and bus of every rank when a communicator is set up."""
    placed: dict[tuple[str, str, str, str], list[_Placed]] = {}
    for event in events:
        found = _INIT.search(event.text) if " NCCL INFO " in event.text and "busId" in event.text else None
        if found:
            key = (found["host"], found["bus"], found["of"], found["comm"] or "")
            placed.setdefault(key, []).append(_Placed(found["pid"], int(found["rank"]), event))
    ranks: set[int] = set()
    shown: list[Shown] = []
    for here in placed.values():
        if len({one.pid for one in here}) > 1 and len({one.rank for one in here}) > 1:
            ranks |= {one.rank for one in here}
            shown += [Shown(one.event.file, one.event.line, one.event.text) for one in here[:2]]
    return [_candidate("duplicate_gpu", "likely", sorted(ranks), shown)] if ranks else []


def _fewer(events: Sequence[Event]) -> list[Candidate]:
    """Accelerate gives process N the device N modulo the number of visible GPUs, so another number says that there are fewer."""
    at = {(event.file, event.line): event for event in events if "Local process index:" in event.text}
    found: list[tuple[int, Event]] = []
    for event in events:
        device = _DEVICE.search(event.text)
        before = at.get((event.file, event.line - 1)) if device else None
        local = _LOCAL.search(before.text) if before is not None else None
        if device and local and int(device["device"]) < int(local["local"]):
            found.append((int(local["local"]), event))
    if not found:
        return []
    shown = []
    for _, event in found[:2]:
        shown += [
            Shown(event.file, event.line - 1, at[event.file, event.line - 1].text),
            Shown(event.file, event.line, event.text),
        ]
    return [_candidate("more_ranks_than_gpus", "certain", sorted({local for local, _ in found}), shown)]


def _peer_to_peer(events: Sequence[Event]) -> list[Candidate]:
    """The very first collective timed out, and the ranks were connected by direct access."""
    first = [event for event in events if _FIRST.search(event.text)]
    direct = [event for event in events if " via P2P" in event.text]
    if not first or not direct:
        return []
    shown = [Shown(one.file, one.line, one.text) for one in (direct[0], first[0])]
    ranks = sorted({event.rank for event in first if event.rank is not None})
    return [_candidate("p2p_blocked_by_acs", "possible", ranks, shown)]


def _candidate(name: str, level: str, ranks: Sequence[int], shown: Sequence[Shown]) -> Candidate:
    at = (shown[0].file, shown[0].line)
    return Candidate(diagnosis_store.get(name), level, tuple(ranks), tuple(shown), 6, at, "", True)
