"""What each rank did, as far as the logs tell: failed by itself, only noticed that another went away, waited, or said nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.readers.logs.records import Evidence, Failed, Frame, Raised

# Raised by the launcher about its children, by a parent about its own, and by Python when it is told to stop.
_ABOUT_OTHERS = frozenset(
    [
        "ChildFailedError",
        "SignalException",
        "KeyboardInterrupt",
        "SystemExit",
        "ProcessExitedException",
        "ProcessRaisedException",
    ]
)
# What a rank says when another one went away. It is true of any transport, and never the first failure.
NOTICED = re.compile(
    r"Connection (?:closed by|reset by) (?:remote )?peer|Broken pipe|got 0 bytes|Socket closed|remote process exit"
    r"|communicator was aborted|errors while waiting for send/recv from rank|recvValue failed|Connection was likely closed"
)
# What a rank says when it waited for longer than the timeout.
WAITED = re.compile(
    r"Timed out waiting \d+ ?ms for (?:recv|send)|collective operation timeout: WorkNCCL|(?i:\bwait timeout\b)|Socket Timeout"
    r"|timed out connecting: .*(?:timed out|refused)|Timed out after \d+ seconds waiting for clients"
    r"|client socket has timed out after"
)
_CHECKPOINT_HEAD = re.compile(r"CheckpointException ranks:dict_keys\(\[(?P<ranks>[\d, ]+)\]\)")
TERM = -15
MOST = 65536  # ranks that are looked at


class State(NamedTuple):
    """One rank."""

    rank: int
    own: Raised | None  # what it raised by itself
    noticed: Raised | None
    waited: Raised | None
    exitcode: int | None  # by torchrun's table; None where the table does not name it
    stopped: bool  # told to stop by torchrun
    shown: bool  # something of it is in the logs


class Job(NamedTuple):
    """All ranks that the logs name."""

    states: dict[int, State]
    table: tuple[Failed, ...]  # torchrun's, the last one where it restarted
    raised: tuple[Raised, ...]  # exceptions of the training itself, with their ranks where these are known
    ended: tuple[int, ...]  # ranks that came to the end of their program, or whose log stops without an error

    def of(self, *, own: bool = False, noticed: bool = False, waited: bool = False) -> list[int]:
        """The ranks that raised by themselves, only noticed, or only waited."""
        return sorted(
            rank
            for rank, one in self.states.items()
            if (own and one.own)
            or (noticed and one.noticed and not one.own and not one.waited)
            or (waited and one.waited and not one.own)
        )


def kind_of(one: Raised) -> str:
    """Which of "noticed", "waited" and "own" an exception is."""
    if WAITED.search(one.message):
        return "waited"
    # A download that is cut off says the same words: it is the rank's own failure.
    through_torch = not one.frames or any("/torch/" in frame.file for frame in one.frames)
    return "noticed" if through_torch and NOTICED.search(one.message) else "own"


def job(logs: Sequence[Evidence], empty: Sequence[int] = ()) -> Job:
    """What the logs say about every rank. ``empty`` are the ranks whose files hold nothing."""
    table = _last_table(row for log in logs for row in log.failed)
    raised = [one for log in logs for one in log.raised if one.kind.rpartition(".")[2] not in _ABOUT_OTHERS]
    raised = _with_ranks(raised, table)
    ranks = {row.rank for row in table} | {one.rank for one in raised if one.rank is not None}
    spoken = {log.rank for log in logs if log.rank is not None}
    spoken |= {event.rank for log in logs for event in log.events if event.rank is not None}
    ranks |= spoken | set(empty)
    if table and len({row.host for row in table}) == 1:
        # One node numbers its ranks without gaps; a rank that is not in the table of failures has not failed.
        ranks |= set(range(min(MOST, max(row.rank for row in table))))
    rows = {row.rank: row for row in table}
    first: dict[int, dict[str, Raised]] = {}
    for one in raised:
        if one.rank is not None:
            first.setdefault(one.rank, {}).setdefault(kind_of(one), one)
    states = {}
    for rank in sorted(ranks)[:MOST]:
        by_kind = first.get(rank, {})
        row = rows.get(rank)
        code = row.exitcode if row is not None else None
        shown = rank in spoken or bool(by_kind)
        states[rank] = State(
            rank, by_kind.get("own"), by_kind.get("noticed"), by_kind.get("waited"), code, code == TERM, shown
        )
    quiet = [one for one in states.values() if not (one.own or one.noticed or one.waited) and one.exitcode is None]
    # Without a table only a file of its own can show that a rank ended without an error.
    files = {log.rank for log in logs if log.rank is not None} | set(empty)
    ended = tuple(one.rank for one in quiet if table or one.rank in files)
    return Job(states, tuple(table), tuple(raised), ended)


def earliest(known: Job) -> list[int]:
    """The ranks with exceptions of their own; where these differ, those that failed first by their time stamps or torchrun's table."""
    own = known.of(own=True)
    raised = {rank: one for rank in own if (one := known.states[rank].own) is not None}
    if len({(one.kind, one.message) for one in raised.values()}) < 2:
        return own
    in_table = {row.rank: row.time for row in known.table if row.time}
    for times in ({rank: one.time for rank, one in raised.items()}, in_table):
        given = [times.get(rank, "") for rank in own]
        # As text: they compare only where they are written in one way.
        if all(given) and len({(len(one), one[-1:].isdigit()) for one in given}) == 1:
            return [rank for rank in own if times[rank] == min(given)]
    return own


def _last_table(rows: Iterable[Failed]) -> list[Failed]:
    """With restarts, torchrun prints its table once, at the end; several files may hold it."""
    last: dict[int, Failed] = {}
    for row in rows:
        last[row.rank] = row
    return list(last.values())


def _with_ranks(raised: Sequence[Raised], table: Sequence[Failed]) -> list[Raised]:
    """Tracebacks before ``init_process_group`` carry no rank: torchrun's table tells it, where that leaves no choice."""
    bare = [one for one in raised if one.rank is None and kind_of(one) == "own"]
    named = {one.rank for one in raised if one.rank is not None}
    able = [row.rank for row in table if row.exitcode > 0 and row.rank not in named]
    if not bare or (len(able) != 1 and len(bare) < len(able)):
        return list(raised)
    alike = len({(one.kind, one.message) for one in bare}) == 1
    out = []
    left = sorted(able)
    for one in raised:
        if one.rank is None and kind_of(one) == "own" and left and (alike or len(able) == 1):
            one = one._replace(rank=left.pop(0) if len(left) > 1 else left[0])
        out.append(one)
    return out


def is_own(frame: Frame) -> bool:
    """Whether a frame is the user's code: outside installed packages, the interpreter and generated code."""
    file = frame.file.replace("\\", "/")
    return not (
        "site-packages" in file
        or "dist-packages" in file
        or "<" in file
        or re.search(r"/lib/python\d", file)
        or "/torch/" in file
        or re.search(r"/bin/(?:torchrun|accelerate|deepspeed|python\d?)$", file)
    )


def place_of(one: Raised | None) -> str:
    """The innermost line of the user's own code in a traceback: ``file:line in function``."""
    frame = own_frame(one)
    return f"{frame.file}:{frame.line} in {frame.function}" if frame else ""


def own_frame(one: Raised | None) -> Frame | None:
    """The frame of it."""
    for frame in reversed(one.frames if one is not None else ()):
        if is_own(frame):
            return frame
    return None


def names(ranks: Sequence[int]) -> str:
    """For a sentence."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
