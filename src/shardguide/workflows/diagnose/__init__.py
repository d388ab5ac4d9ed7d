"""Workflow W7, errors: from logs and dumps to the rank, the cause and the fix, each with the lines that show it."""

from __future__ import annotations

from collections.abc import Sequence

from shardguide.guidance.hints import TYPE_CHECKING, Any, NamedTuple
from shardguide.guidance.record import Fact, Guidance
from shardguide.knowledge import diagnosis_store
from shardguide.readers.logs.records import Evidence

from ..release import Resolved, resolve
from . import numbers as numbers_of
from . import order, placement, privacy, verdicts, watchdog
from .answer import record
from .files import Input, collect
from .match import Candidate, Shown, candidates
from .merge import once

if TYPE_CHECKING:
    from concurrent.futures import Executor

# Words of the reports that context.py reads, and of the stacks that stacks.py does.
STACKS = ('"MainThread"', " (most recent call first):")
REPORTS = ("NVIDIA-SMI ", "NVSMI LOG", "CPU Affinity", "algbw", "PyTorch version: ", "memory.total [", "nvidia-nccl-cu")


class DiagnoseRequest(NamedTuple):
    """Everything a front end hands over."""

    paths: tuple[str, ...] = ()
    question: str = ""
    code: tuple[str, ...] = ()
    torch: str | None = None
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None
    anonymise: bool = False  # host and user names, addresses and home folders are replaced
    text: str = ""  # a log, or a part of one, that was pasted


def diagnose(request: DiagnoseRequest, executor: Executor | None = None) -> Guidance:
    """The ranked diagnoses of what was handed over. With an executor it reads the files, and nothing else.

    Raises UnusableInput for files that cannot be read, and where nothing was handed over.
    """
    from shardguide.guidance.errors import UnusableInput

    if not request.paths and not request.question and not request.text:
        raise UnusableInput("diagnose needs a log or a dump, or --question with what happens in words.")
    if not request.text and not request.paths:
        from shardguide.readers.logs.loose import printed

        if printed(request.question):  # an error was said as words
            request = request._replace(text=request.question)
    if request.text:
        return _pasted(request, executor)
    resolved = resolve(request.torch, request.site_packages, request.remembered.get("torch"))
    inputs, left = collect(request.paths) if request.paths else ([], [])
    logs, cut = read([one for one in inputs if one.kind in ("log", "report")], executor)
    logs = _without_ranks(logs, {one.path for one in inputs if one.kind == "report"})
    start = order.first(logs, empty_ranks(left))
    recorded, damaged = from_dumps([one for one in inputs if one.kind == "flight recorder"], executor)
    damaged = [*cut, *damaged]
    if damaged and len(damaged) == len(inputs):
        raise UnusableInput(damaged[0])
    by_words, facts = from_words(logs)
    measured, numbers, broken = from_measurements(inputs)
    standing, unread = from_stacks(inputs, logs, executor)
    if unread and len(unread) + len(damaged) == len(inputs):
        raise UnusableInput(unread[0])
    by_ranks = (
        [*watchdog.from_logs(logs, start.job), *verdicts.verdicts(start.job, logs, [*by_words, *recorded])]
        if logs
        else []
    )
    by_words = [*numbers_of.decided(by_words, logs), *placement.from_logs(logs)]
    if standing:
        # The line in one stack says less than all stacks together.
        by_words = [one for one in by_words if one.diagnosis.id != "rank_waits_in_collective"]
    # Disagreements of several groups in Flight Recorder dumps stay apart: the later ones follow from the first.
    known = [*once([*by_words, *measured]), *by_ranks, *standing, *recorded]
    known, resolved, more = in_context(known, inputs, logs, resolved, request)
    if request.question:
        from .question import with_question

        known = with_question(known, request.question)
    found = order.ranked(known, start)
    if request.code:
        from .code_lines import locate

        found = locate(found, request.code)
    aside = [*left, *damaged, *broken, *unread]
    made = record(request, resolved, inputs, aside, logs, start, found, [*facts, *numbers, *more])
    return privacy.guarded(made, logs, request.anonymise)


def _pasted(request: DiagnoseRequest, executor: Executor | None) -> Guidance:
    """What was pasted is read as standard input would be."""
    from shardguide.readers.logs.source import PASTED

    before = PASTED.set(request.text.encode("utf-8", "replace"))
    try:
        return diagnose(request._replace(paths=("-", *request.paths), text=""), executor)
    finally:
        PASTED.reset(before)


def read(inputs: Sequence[Input], executor: Executor | None = None) -> tuple[list[Evidence], list[str]]:
    """What every log says, and which of them could not be read."""
    if not inputs:
        return [], []
    from shardguide.readers.logs.scan import merged

    from .reading import logs, mapped

    parts = list(mapped(logs, [one.path for one in inputs], executor))
    return merged(one for one in parts if isinstance(one, Evidence)), [one for one in parts if isinstance(one, str)]


def empty_ranks(left: Sequence[str]) -> list[int]:
    """The ranks whose files are empty: they said nothing, which is evidence as well."""
    if not left:
        return []
    from shardguide.readers.logs.scan import rank_of_file

    ranks = (rank_of_file(one.removesuffix(": empty")) for one in left if one.endswith(": empty"))
    return sorted({rank for rank in ranks if rank is not None})


def from_dumps(inputs: Sequence[Input], executor: Executor | None = None) -> tuple[list[Candidate], list[str]]:
    """What the Flight Recorder dumps of the ranks show, and which of them could not be read."""
    if not inputs:
        return [], []
    from .alignment import Alignment, own_frame
    from .reading import dumps, mapped

    alignment = Alignment()
    damaged = []
    for one in mapped(dumps, [one.path for one in inputs], executor):
        if isinstance(one, str):
            damaged.append(one)
        else:
            alignment.take(one)
    found = []
    for number, finding in enumerate(alignment.findings()):
        diagnosis = diagnosis_store.get(finding.kind)
        place = own_frame(finding.frames)
        shown = [Shown(finding.file, 0, finding.text)]
        if place:
            shown.append(Shown(finding.file, 0, f"stack: {place}"))
        # The earliest disagreement stands above all that follows from it.
        found.append(
            Candidate(diagnosis, diagnosis.confidence if not number else "possible", finding.ranks, tuple(shown),
                      100.0 - number, (finding.file, number), place)
        )  # fmt: skip
    return found, damaged


def from_stacks(
    inputs: Sequence[Input], logs: Sequence[Evidence], executor: Executor | None = None
) -> tuple[list[Candidate], list[str]]:
    """What the stacks of running processes show, in files of their own and inside logs; and which files could not be read."""
    paths = [one.path for one in inputs if one.kind == "stacks"]
    inside = [log for log in holding(logs, STACKS) if log.file != "-"]
    if not paths and not inside:
        return [], []
    from . import stacks
    from .reading import mapped
    from .reading import stacks as read_stacks

    found: list[Any] = []
    damaged = []
    for one in mapped(read_stacks, paths, executor):
        if isinstance(one, str):
            damaged.append(one)
        else:
            found += one
    for log in inside:
        found += stacks.inside(log)
    return stacks.from_stacks(found), damaged


def holding(logs: Sequence[Evidence], probes: Sequence[str]) -> list[Evidence]:
    """The logs in which one of these words stands."""
    if not logs:
        return []
    wanted = {at for at, word in enumerate(diagnosis_store.words()) if word in probes}
    return [log for log in logs if any(sign in wanted for sign, _ in log.counts)]


def in_context(
    found: list[Candidate],
    inputs: Sequence[Input],
    logs: Sequence[Evidence],
    resolved: Resolved,
    request: DiagnoseRequest,
) -> tuple[list[Candidate], Resolved, list[Fact]]:
    """The same with what reports about the machine add; the release that they state stands for the one that nobody named."""
    telling = holding(logs, REPORTS)
    if not telling and not any(one.kind == "report" for one in inputs):
        return found, resolved, []
    from . import context

    reports = context.read(inputs, logs)
    stated = None if request.torch else context.release(reports)
    if stated:
        resolved = resolve(None, request.site_packages, None, stated)
    return context.weighed(found, reports, logs), resolved, context.facts(reports)


def _without_ranks(logs: list[Evidence], reports: set[str]) -> list[Evidence]:
    """A report whose file is named after a rank is no output of that rank."""
    return [
        log._replace(rank=None)
        if log.file in reports and log.lines < 5000 and not log.raised and not log.failed
        else log
        for log in logs
    ]


def from_words(logs: Sequence[Evidence]) -> tuple[list[Candidate], list[Fact]]:
    """What the words in the logs say. Of memory they say only that something is to be worked out."""
    found = candidates(logs)
    if not any(one.diagnosis.family == "memory" for one in found):
        return found, []
    from . import memory, snapshots

    worked_out, facts = memory.from_logs(logs)
    tables, numbers = snapshots.from_summaries(logs)
    return [*(one for one in found if one.diagnosis.id not in memory.IDS), *worked_out, *tables], [*facts, *numbers]


def from_measurements(inputs: Sequence[Input]) -> tuple[list[Candidate], list[Fact], list[str]]:
    """What memory snapshots, allocator statistics and profiler traces show."""
    kinds = {one.kind for one in inputs}
    found: list[Candidate] = []
    facts: list[Fact] = []
    damaged: list[str] = []
    parts = []
    if kinds & {"memory snapshot", "memory stats"}:
        from . import snapshots

        parts += [("memory snapshot", snapshots.from_snapshots), ("memory stats", snapshots.from_stats)]
    if "trace" in kinds:
        from .trace import from_traces

        parts.append(("trace", from_traces))
    for kind, analyse in parts:
        of = [one for one in inputs if one.kind == kind]
        if of:
            candidates_, facts_, damaged_ = analyse(of)
            found += candidates_
            facts += facts_
            damaged += damaged_
    return found, facts, damaged
