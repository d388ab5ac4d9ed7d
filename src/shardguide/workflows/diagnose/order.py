"""First failure against cascade: which rank failed by itself, and which ones only noticed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.readers.logs.records import Evidence, Failed, Raised

from .match import LEVELS, Candidate
from .ranks import TERM, Job, earliest, job, kind_of, place_of

FAR = 400  # lines between words and the traceback that they belong to
# DCP raises on every rank what some ranks met, and says which.
_ONE = re.compile(r"\d{1,7}")
_ON_RANKS = re.compile(r"CheckpointException ranks:dict_keys\(\[(?P<ranks>[\d, ]+)\]\)")


class First(NamedTuple):
    """What the logs say about who failed first."""

    root: tuple[int, ...]  # ranks that failed by themselves, as far as exit codes, exceptions or torchrun's table say
    failed: tuple[Failed, ...]
    raised: tuple[Raised, ...]  # exceptions of the training itself
    job: Job
    ends: tuple[str, int] = (
        "",
        0,
    )  # with restarts, where the first attempt ends: what comes later repeats or follows from it


def first(logs: Sequence[Evidence], empty: Sequence[int] = ()) -> First:
    """Who failed by itself. ``empty`` are the ranks whose files hold nothing.

    Whoever was killed by a signal other than torchrun's cannot have been told to stop by another's error. Next come ranks with an
    exception of their own, then those that ended with a status. torchrun's "root cause" is only the first that its agent saw, a
    tenth of a second apart: it decides where nothing else does.
    """
    known = job(logs, empty)
    codes = {row.rank: row.exitcode for row in known.table}
    killed = [rank for rank, code in codes.items() if code < 0 and code != TERM]
    own = earliest(known)
    ended = [rank for rank, code in codes.items() if code > 0 and not _raised_anything(known, rank)]
    seen = [row.rank for row in known.table if row.root]
    before, ends = _first_attempt(logs, known)
    root = before or killed or own or ended or seen
    return First(tuple(sorted(root)), known.table, known.raised, known, ends)


# What torchrun's agent says at the end of every attempt about the first that failed.
_ATTEMPT = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)")


def _first_attempt(logs: Sequence[Evidence], known: Job) -> tuple[list[int], tuple[str, int]]:
    """With restarts the table is the last attempt's, and what failed in the first is the cause: who was killed there, and its end."""
    for log in logs:
        ends = {event.line: found for event in log.events if (found := _ATTEMPT.search(event.text))}
        if len(ends) > 1:
            one = ends[min(ends)]
            killed = int(one["code"]) < 0 and int(one["code"]) != TERM
            return list(_by_local(int(one["local"]), known)) if killed else [], (log.file, min(ends))
    return [], ("", 0)


def _by_local(local: int, known: Job) -> tuple[int, ...]:
    """The rank of a local rank: by torchrun's table, where it has only one of them."""
    rows = [row.rank for row in known.table if row.local == local]
    return tuple(rows) if len(rows) == 1 else (local,) if not known.table else ()


def _raised_anything(known: Job, rank: int) -> bool:
    one = known.states.get(rank)
    return one is not None and bool(one.own or one.noticed or one.waited)


def completed(found: Sequence[Candidate], start: First) -> list[Candidate]:
    """The candidates with the ranks that their lines do not name, and the line of the user's code."""
    on_ranks = {
        int(one) for raised in start.raised for text in _ON_RANKS.findall(raised.message) for one in _ONE.findall(text)
    }
    out = []
    by_line = _by_line(start.raised)
    dcp = {one.file for one in start.raised if _ON_RANKS.search(one.message)}
    for one in found:
        raised = list(
            dict.fromkeys(each for shown in one.evidence for each in by_line.get((shown.file, shown.line), ()))
        )
        raised = [*_original(raised, start), *raised]
        ranks = one.ranks
        if not one.named and raised and raised[0].file in dcp:
            ranks = tuple(sorted(on_ranks))
        if not ranks and raised:
            ranks = tuple(sorted({each.rank for each in raised if each.rank is not None}))
        ranks = _said(one) or _not_joined(one, start) or ranks or _rows(one, start)
        if not ranks:
            told = [int(said["local"]) for shown in one.evidence if (said := _ATTEMPT.search(shown.text))]
            ranks = _by_local(told[0], start.job) if told else ()
        if not ranks and one.diagnosis.kind == "cause" and _unranked(one, start):
            ranks = start.root or tuple(row.rank for row in start.failed if row.exitcode != TERM)
        place = one.place or next((text for each in raised if (text := place_of(each))), "") or _near(one, start)
        out.append(one._replace(ranks=ranks, place=place))
    return out


def _by_line(raised: Sequence[Raised]) -> dict[tuple[str, int], list[Raised]]:
    """The exceptions by every line on which their own line and their message stand."""
    out: dict[tuple[str, int], list[Raised]] = {}
    for one in raised:
        for number in range(one.line, one.line + 2 + one.message.count("\n")):
            out.setdefault((one.file, number), []).append(one)
    return out


def _original(raised: Sequence[Raised], start: First) -> list[Raised]:
    """The traceback inside a data loader's worker, which stands below that of the rank that raised it again."""
    if not any(re.match(r"Caught \w+ in ", one.message) for one in raised):
        return []
    at = raised[0]
    below = [one for one in start.raised if one.file == at.file and one.rank == at.rank and 0 < one.line - at.line < 80]
    return below[:1]


def _near(one: Candidate, start: First) -> str:
    """The place in the closest traceback of that rank: chained and repeated exceptions share one call."""
    if not one.evidence:
        return ""
    at = one.evidence[0]
    found = [
        (abs(each.line - at.line), place)
        for each in start.raised
        if each.file == at.file and (each.rank is None or not one.ranks or each.rank in one.ranks)
        if abs(each.line - at.line) <= FAR and (place := place_of(each))
    ]
    if found:
        return min(found)[1]
    if one.diagnosis.family == "collectives":  # the rank itself left no traceback: where the others wait for it
        return next((text for each in start.raised if kind_of(each) != "own" and (text := place_of(each))), "")
    return ""


# Where the words name another rank than the one that prints them.
_NAMED = re.compile(r"RuntimeError: Rank (\d{1,7}) exhausted all inputs")


def _said(one: Candidate) -> tuple[int, ...]:
    return tuple(sorted({int(found[1]) for shown in one.evidence if (found := _NAMED.search(shown.text))}))


def _rows(one: Candidate, start: First) -> tuple[int, ...]:
    """The ranks of torchrun's table in whose rows the evidence stands."""
    return tuple(
        sorted(
            row.rank
            for row in start.failed
            if any(shown.file == row.file and 0 <= shown.line - row.line <= 6 for shown in one.evidence)
        )
    )


def _not_joined(one: Candidate, start: First) -> tuple[int, ...]:
    """The ranks that never came to the store, where the logs name exactly those that did."""
    for shown in one.evidence:
        found = re.search(r"(\d{1,5})/(\d{1,5}) clients joined", shown.text)
        if found and int(found[1]) == len(start.job.states):
            return tuple(sorted(set(range(int(found[2]))) - set(start.job.states)))
    return ()


def _unranked(one: Candidate, start: First) -> bool:
    """Whether a table row can stand for lines that name no rank: the exit codes of the processes are about them."""
    return bool(one.evidence) and any(one.evidence[0].file == row.file for row in start.failed)


def ranked(found: list[Candidate], start: First) -> list[Candidate]:
    """The candidates, the first cause first; cascades only where nothing else was found."""
    kinds = {"cause": 0, "symptom": 1, "cascade": 2}

    def key(one: Candidate) -> tuple[object, ...]:
        at_root = bool(set(one.ranks) & set(start.root)) if start.root and one.ranks and not one.named else None
        later = one.order[0] == start.ends[0] and one.order[1] > start.ends[1]
        return (
            kinds[one.diagnosis.kind],
            later,
            at_root is False,
            LEVELS.index(one.confidence),
            -one.weight,
            one.order,
            one.diagnosis.id,
        )

    out: list[Candidate] = []
    for one in sorted(completed(found, start), key=key):
        # What the ranks together and a line alone say is said once; groups of Flight Recorder dumps stay apart.
        if one.diagnosis.family == "flight-recorder" or all(one.diagnosis.id != other.diagnosis.id for other in out):
            out.append(one)
    return out
