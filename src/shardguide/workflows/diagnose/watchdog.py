"""ProcessGroupNCCL's watchdog: what each rank waits in by its own numbers, and which rank never came.

The lines hold, per rank, the sequence number, operation and sizes of the collective that timed out, and how far the group had
come (last enqueued, started, completed work). A rank that only heard of the timeout says so. Wordings of all releases since 2.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import diagnosis_store
from shardguide.readers.logs.records import Event, Evidence

from .match import Candidate, Shown
from .ranks import MOST, Job, names

_WORK = re.compile(
    r"collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=\[[\d, ]*\])?(?:, NumelIn=(?P<in>\d+), NumelOut=(?P<out>\d+))?(?:.*?Timeout\(ms\)=(?P<ms>\d+))?"
)
_STATUS = re.compile(
    r"[Ll]ast enqueued(?: NCCL)? work: (?P<enqueued>-?\d+)(?:, last started(?: NCCL)? work: -?\d+)?"
    r", last completed(?: NCCL)? work: (?P<completed>-?\d+)"
)
_RANK = re.compile(r"(?:\[| )Rank (?P<rank>\d{1,6})\]")
_GROUP = re.compile(r"\[PG (?:ID )?(?P<group>\S+)")
_HEARD = re.compile(r"Received a dump signal due to a collective timeout from\s+(?:rank (?P<rank>\d+)|this local rank)")
# Preparing data: progress bars of datasets, tokenizers and downloads.
_PREPARES = re.compile(
    r"examples/s|Running tokenizer|Tokenizing|Grouping texts|Generating \w+ split|Filter(?:ing)?\b.*\d+%|Downloading|Extracting"
)
_STAMP = re.compile(r"[EWF](?P<day>\d{3,4}) (?P<time>\d\d:\d\d:\d\d\.\d+)")
SETUP = 3  # sequence numbers up to here belong to the set-up


class Wait(NamedTuple):
    """One rank's timeout."""

    rank: int
    group: str
    seq: int
    op: str
    numel_in: int
    numel_out: int
    event: Event


class Told(NamedTuple):
    """How far a rank's group had come."""

    enqueued: int
    completed: int
    event: Event


def from_logs(logs: Sequence[Evidence], job: Job) -> list[Candidate]:
    """What the watchdogs' numbers say together."""
    waits: dict[int, Wait] = {}
    told: dict[int, Told] = {}
    heard: set[int] = set()
    prepares: list[Event] = []
    for log in logs:
        for event in log.events:
            if "WorkNCCL(" in event.text:
                wait = _wait(event)
                if wait is not None:
                    waits.setdefault(wait.rank, wait)
            elif "ast enqueued" in event.text:
                rank, status = _rank(event), _STATUS.search(event.text)
                if rank is not None and status:
                    told.setdefault(rank, Told(int(status["enqueued"]), int(status["completed"]), event))
            other = _HEARD.search(event.text) if "dump signal" in event.text else None
            rank = _rank(event) if other else None
            if other and other["rank"] is not None and rank is not None and int(other["rank"]) != rank:
                heard.add(rank)
            if _PREPARES.search(event.text):
                prepares.append(event)
    if not waits or job.of(own=True):
        return []
    return _judge(waits, told, heard, prepares, job)


def _judge(
    waits: dict[int, Wait], told: dict[int, Told], heard: set[int], prepares: list[Event], job: Job
) -> list[Candidate]:
    first = min(waits.values(), key=lambda one: (_time(one.event), one.event.file, one.event.line))
    shown = [Shown(one.event.file, one.event.line, one.event.text) for one in list(waits.values())[:3]]
    slow = _slow_start(first, prepares, shown)
    if slow:
        return slow
    apart = _apart(waits, shown)
    if apart:
        return apart
    known = set(job.states) | set(told) | heard | set(range(min(MOST, max(waits) + 1)))
    # Enqueued equals completed: everything this rank issued is done, so it never came to what the others wait for. The numbers
    # are the default group's; they speak of this collective only where those of a waiting rank do.
    of_this_group = any(
        rank in told and told[rank].completed == wait.seq - 1 and told[rank].enqueued >= wait.seq
        for rank, wait in waits.items()
    )
    idle = sorted(
        rank
        for rank, one in told.items()
        if of_this_group and rank not in waits and 0 <= one.enqueued == one.completed < first.seq
    )
    missing = idle or sorted(known - set(waits) - heard)
    for rank in idle[:2]:
        shown.append(Shown(told[rank].event.file, told[rank].event.line, told[rank].event.text))
    if len(waits) == 1 and first.rank == 0 and "GATHER" in first.op and first.seq > SETUP and len(missing) != 1:
        return [_candidate("rank0_only_state_dict", [0], shown, "possible")]
    if not missing or (len(missing) >= len(waits) * 2 and not idle):
        return []
    if missing:
        shown.append(Shown(shown[0].file, shown[0].line, f"no timeout of {names(missing)}"))
    level = "likely" if idle or (len(waits) >= 2 * len(missing) > 0 and len(waits) > 1) else "possible"
    if first.seq <= SETUP:
        return []
    return [_candidate("uneven_batches", missing, shown, level)]


def _slow_start(first: Wait, prepares: list[Event], shown: list[Shown]) -> list[Candidate]:
    """A flag or barrier among the first collectives, while a progress bar says that data was prepared."""
    if first.numel_in > 1 or first.seq > SETUP or not prepares:
        return []
    last = prepares[-1]
    ranks = [last.rank] if last.rank is not None else [last.local] if last.local is not None else [0]
    lines = [Shown(last.file, last.line, last.text), *shown]
    return [_candidate("rank0_preprocess_exceeds_timeout", ranks, lines, "likely")]


def _apart(waits: dict[int, Wait], shown: list[Shown]) -> list[Candidate]:
    """Ranks that wait in different collectives of one group."""
    by_group: dict[str, dict[int, tuple[int, str, int, int]]] = {}
    for one in waits.values():
        by_group.setdefault(one.group, {})[one.rank] = (one.seq, one.op, one.numel_in, one.numel_out)
    for of in by_group.values():
        counts = Counter(of.values()).most_common()
        if len(counts) < 2:
            continue
        even = counts[0][1] == counts[1][1]
        behind = _far_behind({rank: one[0] for rank, one in of.items()})
        odd = sorted(of) if even else sorted(rank for rank, one in of.items() if one != counts[0][0])
        if even and behind is not None:
            odd = [behind]
        different = [waits[rank].event for rank in (odd[0], next(rank for rank in of if of[rank] != of[odd[0]]))]
        lines = list(dict.fromkeys([*(Shown(one.file, one.line, one.text) for one in different), *shown]))
        return [_candidate("rank_divergent_branch", odd, lines, "likely")]
    return []


def _far_behind(seqs: dict[int, int]) -> int | None:
    """The rank whose number is further below the others' than theirs are apart: it left their common order."""
    ordered = sorted(seqs, key=lambda rank: seqs[rank])
    if len(ordered) < 3 or seqs[ordered[0]] < 0:
        return None
    gap = seqs[ordered[1]] - seqs[ordered[0]]
    return ordered[0] if gap > seqs[ordered[-1]] - seqs[ordered[1]] else None


def _candidate(name: str, ranks: Sequence[int], shown: Sequence[Shown], confidence: str) -> Candidate:
    at = (shown[0].file, shown[0].line)
    return Candidate(diagnosis_store.get(name), confidence, tuple(ranks), tuple(shown), 5, at, "", True)


def _rank(event: Event) -> int | None:
    found = _RANK.search(event.text)
    return int(found["rank"]) if found else event.rank


def _time(event: Event) -> tuple[int, str]:
    """When a line was written, by its own stamp: day and time as glog writes them; lines without one come last."""
    found = _STAMP.search(event.text)
    return (int(found["day"]), found["time"]) if found else (1 << 16, "")


def _wait(event: Event) -> Wait | None:
    found = _WORK.search(event.text)
    rank = _rank(event)
    if found is None or rank is None:
        return None
    group = _GROUP.search(event.text)
    return Wait(
        rank, group["group"] if group else "", int(found["seq"] or -1), found["op"], int(found["in"] or -1),
        int(found["out"] or -1), event,
    )  # fmt: skip
