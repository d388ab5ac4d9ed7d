"""What follows from the ranks together and from no line alone: who failed first, who never came, who went another way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from shardguide.knowledge import diagnosis_store
from shardguide.readers.logs.blocks import TIMED_OUT
from shardguide.readers.logs.records import Evidence, Raised

from .match import Candidate, Shown
from .ranks import TERM, Job, State, earliest, names, own_frame, place_of

# Signals by which a process dies of its own fault, and the diagnosis of each.
_SIGNALS = {-6: "crashed_sigabrt", -11: "rank_segfault", -7: "rank_bus_error", -4: "rank_illegal_instruction"}
_FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]*)\])?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
_GATHERS = frozenset(
    [
        "get_model_state_dict",
        "get_state_dict",
        "get_optimizer_state_dict",
        "full_tensor",
        "state_dict",
        "_state_dict",
        "summon_full_params",
        "optim_state_dict",
        "full_optim_state_dict",
    ]
)


def verdicts(job: Job, logs: Sequence[Evidence], found: Sequence[Candidate]) -> list[Candidate]:
    """The diagnoses that the comparison of ranks gives. ``found`` are those that lines gave: what they explain is left out."""
    out = [*_fingerprints(job), *_stale_store(job), *_no_such_name(job, logs), *_new_group(job)]
    out += [*_static_graph(job), *_exits(job, found)]
    explained = {  # a signal explains no exception: it is how the process then ended
        (shown.file, shown.line)
        for one in [*found, *out]
        if one.diagnosis.kind == "cause" and one.diagnosis.id not in _SIGNALS.values()
        for shown in one.evidence
    }
    out += _raised(job, logs, explained)
    if not any(one.diagnosis.kind == "cause" for one in [*found, *out]) or _only_waits(job, found):
        out += _waiting(job)
    return out


def _only_waits(job: Job, found: Sequence[Candidate]) -> bool:
    """Whether every rank that spoke only waited or noticed, so that a cause that lines name has no rank of its own."""
    return not job.of(own=True) and not any(
        one.diagnosis.kind == "cause" and one.confidence == "certain" for one in found
    )


def _candidate(
    name: str, ranks: Sequence[int], shown: Sequence[Shown], confidence: str = "", weight: float = 0, place: str = ""
) -> Candidate:
    diagnosis = diagnosis_store.get(name)
    at = (shown[0].file, shown[0].line) if shown else ("", 0)
    return Candidate(diagnosis, confidence or diagnosis.confidence, tuple(ranks), tuple(shown), weight, at, place, True)


def line(one: Raised) -> Shown:
    """The exception as evidence."""
    message = one.message.partition("\n")[0]
    return Shown(one.file, one.line, f"{one.kind}: {message}"[:1000] if message else one.kind)


def _exits(job: Job, found: Sequence[Candidate]) -> list[Candidate]:
    """Processes that died of a signal or ended with a status, without a traceback."""
    out = []
    by_code: dict[int, list[State]] = {}
    for one in job.states.values():
        if one.exitcode is not None and one.exitcode not in (0, TERM) and not (one.own or one.noticed or one.waited):
            by_code.setdefault(one.exitcode, []).append(one)
    rows = {row.rank: row for row in job.table}
    certain = any(one.diagnosis.kind == "cause" and one.confidence == "certain" for one in found)
    for code, states in sorted(by_code.items()):
        name = _SIGNALS.get(code, "rank_exited_nonzero" if code > 0 else "")
        if not name or certain:
            continue
        ranks = [one.rank for one in states]
        shown = [
            Shown(rows[rank].file, rows[rank].line, f"rank {rank} (local_rank: {rows[rank].local}): exitcode {code}")
            for rank in ranks[:4]
        ]
        out.append(_candidate(name, ranks, shown, weight=1))
    return out


def _raised(job: Job, logs: Sequence[Evidence], explained: set[tuple[str, int]]) -> list[Candidate]:
    """An exception of the program on some ranks, while the others noticed, waited or were told to stop."""
    own = earliest(job)
    others = [rank for rank in job.states if rank not in own]
    if not own or not others:
        return []
    mine = [one for rank in own if (one := job.states[rank].own) is not None]
    if any((one.file, line_) in explained for one in mine for line_ in range(one.line - 2, one.line + 14)):
        return []
    timed_out = {event.rank for log in logs for event in log.events if "operation timeout: WorkNCCL(" in event.text}
    reacted = [
        rank
        for rank in others
        if (one_ := job.states[rank]).noticed or one_.waited or one_.stopped or rank in timed_out
    ]
    if not reacted and not any(job.states[rank].exitcode for rank in own):
        return []  # nothing says that the job ended by it: programs print tracebacks that they have caught
    first = mine[0]
    place = place_of(first)
    shown = [line(one) for one in mine[:3]]
    if place:
        shown.append(Shown(first.file, first.line, f"raised at {place}"))
    # An interpreter that ends by an exception may still abort in a thread's destructor: the exception came first.
    weight = 2 if any(job.states[rank].exitcode in _SIGNALS for rank in own) else -1
    return [_candidate("script_raised", own, shown, "likely" if reacted else "possible", weight, place)]


def _fingerprints(job: Job) -> list[Candidate]:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL compares what every rank calls: who differs from most."""
    prints: dict[int, tuple[str, str, str, str]] = {}
    shown: list[Shown] = []
    places: dict[int, str] = {}
    for one in job.raised:
        if "Detected mismatch between collectives on ranks" not in one.message:
            continue
        shown.append(line(one))
        if one.rank is not None:
            places[one.rank] = place_of(one)
        for found in _FINGERPRINT.finditer(one.message):
            prints.setdefault(
                int(found["rank"]), (found["seq"] or "", found["op"], found["shape"] or "", found["dtype"] or "")
            )
    if len(set(prints.values())) < 2:
        return []
    counts = Counter(prints.values()).most_common()
    usual, most = counts[0]
    even = len(counts) > 1 and counts[1][1] == most
    odd = sorted(rank for rank, one in prints.items() if one != usual)
    other = prints[odd[0]]
    if other[:2] != usual[:2]:
        name = "collective_mismatch_op"
    elif other[2] != usual[2]:
        name = "param_unused_on_some_ranks" if "REDUCE_SCATTER" in usual[1] else "collective_mismatch_shape"
    else:
        name = "collective_mismatch_dtype"
    ranks = sorted(prints) if even else odd
    seen = "; ".join(f"rank {rank}: {_print(prints[rank])}" for rank in sorted(prints)[:4])
    shown = [*shown[:2], Shown(shown[0].file, shown[0].line, seen)]
    return [_candidate(name, ranks, shown, weight=3, place=places.get(ranks[0], ""))]


def _print(one: tuple[str, str, str, str]) -> str:
    return f"{one[1]} [{one[2]}] {one[3]}" + (f" as collective {one[0]}" if one[0] else "")


def _stale_store(job: Job) -> list[Candidate]:
    """Addresses in the file of a FileStore at which nobody listens any more."""
    for one in job.raised:
        if "connectFullMesh failed" in one.message and "refused" in one.message:
            told = [frame for frame in one.frames if "file://" in frame.text]
            if told:
                shown = [line(one), Shown(one.file, one.line, told[0].text)]
                ranks = [rank for rank in job.states if job.states[rank].waited or job.states[rank].own]
                return [_candidate("stale_filestore", ranks, shown, weight=4, place=place_of(one))]
    return []


def _static_graph(job: Job) -> list[Candidate]:
    """DDP's message about a graph that changed begins as the one about unused parameters does; its second sentence decides."""
    raised = [one for one in job.raised if "our training graph has changed in this iteration" in one.message]
    if not raised:
        return []
    ranks = sorted({one.rank for one in raised if one.rank is not None})
    shown = [line(one) for one in raised[:3]]
    return [_candidate("ddp_static_graph_changed", ranks, shown, "certain", 2, place_of(raised[0]))]


_ADDRESS = re.compile(r"\((?P<host>[^\s,()]+), (?P<port>\d+)\)")


def _no_such_name(job: Job, logs: Sequence[Evidence]) -> list[Candidate]:
    """A master's name that nothing resolves.

    That IPv6 addresses cannot be retrieved is printed by healthy jobs as well; with a connection to the same name that fails, or
    raised by Python's own resolver, it is the cause.
    """
    failed: dict[str, list[Raised]] = {}
    for one in job.raised:
        address = _ADDRESS.search(one.message)
        if (address and "trying to connect" in one.message) or (address and "failed to connect" in one.message):
            failed.setdefault(address["host"], []).append(one)
        elif one.kind.endswith("gaierror") and any("torch/distributed" in frame.file for frame in one.frames):
            return [_candidate("store_name_unresolved", [], [line(one)], "certain", 3, place_of(one))]
    for log in logs:
        for event in log.events:
            if "network addresses of (" in event.text and "gai error: -2" in event.text:
                address = _ADDRESS.search(event.text)
                raised = failed.get(address["host"], []) if address else []
                if raised:
                    ranks = sorted({one.rank for one in raised if one.rank is not None})
                    shown = [Shown(event.file, event.line, event.text), line(raised[0])]
                    return [_candidate("store_name_unresolved", ranks, shown, "certain", 3, place_of(raised[0]))]
    return []


def _new_group(job: Job) -> list[Candidate]:
    """Ranks that wait in the store while they make a group that others do not make."""
    inside = [
        rank
        for rank, one in job.states.items()
        if one.waited and {"new_group", "_new_group_with_tag"} & {frame.function for frame in one.waited.frames}
    ]
    if not inside or job.of(own=True):
        return []
    others = [rank for rank in job.states if rank not in inside]
    shown = [line(one) for rank in inside[:3] if (one := job.states[rank].waited) is not None]
    ranks = others if others and len(others) < len(inside) else inside
    return [_candidate("new_group_not_by_all", ranks, shown, weight=3, place=place_of(job.states[inside[0]].waited))]


def _waiting(job: Job) -> list[Candidate]:
    """Nobody failed by itself: who waits, who ended, who said nothing."""
    waited = job.of(waited=True)
    noticed = job.of(noticed=True)
    reacted = sorted({*waited, *noticed})
    if not reacted or job.of(own=True):
        return []
    if any(
        one.exitcode is not None and one.exitcode != TERM and one.rank not in reacted for one in job.states.values()
    ):
        return []  # it ended with a status of its own: that is another diagnosis
    shown = [line(one) for rank in reacted[:3] if (one := _reaction(job.states[rank])) is not None]
    if not shown or not any(_in_collective(job.states[rank]) for rank in reacted):
        return []
    apart = _apart(job, reacted, shown)
    if apart:
        return apart
    if all(one.kind == TIMED_OUT for rank in reacted if (one := _reaction(job.states[rank])) is not None):
        return []  # NCCL's own numbers say more (watchdog.py)
    ended = [rank for rank in job.ended if rank not in reacted]
    silent = [rank for rank, one in job.states.items() if one.stopped and rank not in reacted]
    if ended:
        return _ended(job, reacted, ended, shown)
    late = noticed if waited and noticed else silent if waited else []
    if late:
        place = place_of(_reaction(job.states[waited[0]]))
        shown.append(Shown(shown[0].file, shown[0].line, f"no timeout of {names(late)}"))
        confidence = "likely" if len(late) * 2 <= len(job.states) and (noticed or len(job.states) == 2) else "possible"
        return [_candidate("collective_timeout_waiting", late, shown, confidence, 1, place)]
    if waited:
        return [
            _candidate("collective_timeout_waiting", [], shown, "possible", 0, place_of(job.states[waited[0]].waited))
        ]
    return []


def _reaction(one: State) -> Raised | None:
    return one.waited or one.noticed


def _in_collective(one: State) -> bool:
    """Whether it waited in a collective: set-up is diagnosed by its own words."""
    raised = _reaction(one)
    functions = {frame.function for frame in raised.frames} if raised else set()
    if raised is None or not any("/torch/" in frame.file for frame in raised.frames):
        return raised is not None and raised.kind == TIMED_OUT
    return not functions & {"init_process_group", "_create_c10d_store", "_rendezvous_helper", "new_group"}


def _ended(job: Job, reacted: list[int], ended: list[int], shown: list[Shown]) -> list[Candidate]:
    """Some ranks came to their end while others still waited in a collective."""
    one = _reaction(job.states[reacted[0]])
    place = place_of(one)
    shown = [*shown, Shown(shown[0].file, shown[0].line, f"{names(ended)} ended without an error")]
    only = _candidate("rank0_only_collective", reacted, shown, "", 2, place)
    early = _candidate("rank_ended_early", ended, shown, "", 2, place)
    gathers = {frame.function for frame in one.frames} & _GATHERS if one else set()
    if len(reacted) == 1 and gathers:
        return [_candidate("rank0_only_state_dict", reacted, shown, "likely", 3, place)]
    if len(reacted) == 1 and len(ended) == 1:  # two ranks: one too many here, or one too few there
        return [early._replace(confidence="possible"), only._replace(confidence="possible", weight=1)]
    return [only] if len(reacted) * 2 <= len(ended) else [early]


def _apart(job: Job, reacted: list[int], shown: list[Shown]) -> list[Candidate]:
    """Ranks that wait in different places of the program."""
    if len(reacted) < 2:
        return []
    waits = {rank: one for rank in reacted if (one := _reaction(job.states[rank])) is not None}
    calls = {rank: _call(one) for rank, one in waits.items()}
    counts = Counter(calls.values()).most_common()
    if len(counts) < 2 or any(not call[1] for call in calls.values()):
        return []
    usual = counts[0][0] if counts[0][1] > counts[1][1] else calls[max(calls)]
    odd = [rank for rank, call in sorted(calls.items()) if call != usual]
    two = (odd[0], next(rank for rank in calls if calls[rank] == usual))
    seen = [Shown(waits[rank].file, waits[rank].line, f"rank {rank} waits at {place_of(waits[rank])}") for rank in two]
    gathers = {frame.function for frame in waits[odd[0]].frames} & _GATHERS
    if gathers and len(odd) == 1:
        return [_candidate("rank0_only_state_dict", odd, [*shown, *seen], "likely", 4, place_of(waits[odd[0]]))]
    if calls[odd[0]][0] == usual[0]:
        return []  # the same operation from two lines, as a loop's last step and its first may be
    if len(odd) * 2 <= len(calls) and _in_backward(waits[two[1]]) and not _in_backward(waits[two[0]]):
        # The others still train; these are past it. Fewer batches, or a condition of their own: the lines do not say which.
        place = place_of(waits[odd[0]])
        branch = _candidate("rank_divergent_branch", odd, [*shown, *seen], "possible", 3, place)
        return [_candidate("uneven_batches", odd, [*seen, *shown], "likely", 4, place), branch]
    return [_candidate("rank_divergent_branch", odd, [*shown, *seen], "likely", 4, place_of(waits[odd[0]]))]


def _in_backward(one: Raised) -> bool:
    return any(frame.function in ("backward", "run_backward", "_engine_run_backward") for frame in one.frames)


def _call(one: Raised) -> tuple[str, str]:
    """The collective in which a rank waits, and the line of the user's code."""
    inner = [frame.function for frame in one.frames if "torch/distributed/distributed_c10d" in frame.file]
    frame = own_frame(one)
    return inner[0] if inner else "", f"{frame.file}:{frame.line}" if frame else ""
