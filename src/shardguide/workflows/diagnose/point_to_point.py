"""Sends and receives that wait for each other, from Flight Recorder dumps: who waits for whom, and who never came.

The Flight Recorder names them ``send 0->1`` and ``recv 1<-0``, by the ranks within their group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.readers.flight_recorder.dump import Last

_NAME = re.compile(r"(?P<kind>send|recv) (?P<a>\d{1,7})(?:->|<-)(?P<b>\d{1,7})")


class Wait(NamedTuple):
    """A rank in a send or receive that has not ended."""

    rank: int
    peer: int
    kind: str  # "send" or "recv"
    last: Last


class Unmatched(NamedTuple):
    """What does not fit: the diagnosis, the ranks to look at, and in words."""

    kind: str
    ranks: tuple[int, ...]
    text: str
    wait: Wait


def unmatched(
    opened: Mapping[int, Sequence[Last]], members: Callable[[str], Sequence[int]], dumped: Callable[[int], bool]
) -> Unmatched | None:
    """The send or receive at whose end nobody answers; None where none waits, or all of them fit.

    ``opened`` holds what each rank has not finished, ``members`` a group's global ranks in the group's order.
    """
    waits = {}
    for rank, of in sorted(opened.items()):
        wait = _wait(rank, of[0], members) if of else None
        if wait is not None and dumped(wait.peer):
            waits[rank] = wait
    for wait in sorted(waits.values(), key=lambda one: (one.last.created, one.rank)):
        other = waits.get(wait.peer)
        if other is not None and other.peer == wait.rank and other.kind == wait.kind:
            what = "receive from" if wait.kind == "recv" else "send to"
            text = (
                f"ranks {wait.rank} and {wait.peer} both {what} each other ({wait.last.op.name}, {other.last.op.name})"
            )
            return Unmatched("fr_p2p_unmatched", (wait.rank, wait.peer), text, wait)
        if other is not None and other.peer == wait.rank:
            send, recv = (wait, other) if wait.kind == "send" else (other, wait)
            given, wanted = send.last.op.input_sizes, recv.last.op.output_sizes
            if given != wanted:
                text = f"rank {send.rank} sends {given} and rank {recv.rank} receives {wanted}"
                return Unmatched("fr_size_mismatch", (send.rank, recv.rank), text, wait)
    for wait in sorted(waits.values(), key=lambda one: (one.last.created, one.rank)):
        # Along a pipeline one waits for the next: the one at the end, who waits for nobody, is who did not come.
        chain = [wait.rank]
        while chain[-1] in waits and waits[chain[-1]].peer not in chain:
            chain.append(waits[chain[-1]].peer)
        end = chain[-1]
        if end in waits:
            continue  # a circle, or a pair that fits
        busy = opened.get(end) or ()
        where = f"it is in {busy[0].op.name}" if busy else "it has nothing open"
        through = f", through rank {', '.join(str(one) for one in chain[1:-1])}" if len(chain) > 2 else ""
        text = f"rank {wait.rank} waits in {wait.last.op.name} for rank {end}{through}; {where}"
        return Unmatched("fr_p2p_unmatched", (end,), text, wait)
    return None


def _wait(rank: int, last: Last, members: Callable[[str], Sequence[int]]) -> Wait | None:
    found = _NAME.search(last.op.name)
    if found is None:
        return None
    ranks = members(last.group)
    first, second = int(found["a"]), int(found["b"])  # send source->target, recv target<-source
    if max(first, second) >= len(ranks) or ranks[first] != rank:
        return None
    return Wait(rank, ranks[second], found["kind"], last)
