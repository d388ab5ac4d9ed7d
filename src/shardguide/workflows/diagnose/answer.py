"""From ranked candidates to the record: what was found, what it rests on, and where nothing was found, what would help."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.guidance.record import Answer, Check, Decision, Fact, Guidance, Next, Snippet
from shardguide.guidance.serialise import digest
from shardguide.knowledge import diagnosis_store, pattern_store
from shardguide.readers.logs.records import Evidence
from shardguide.readers.remote import scheme

from ..finish import closing
from ..release import Resolved
from ..sources import cite
from . import asked, order, privacy, versions
from .files import Input
from .match import Candidate
from .ranks import kind_of
from .verdicts import line

if TYPE_CHECKING:
    from . import DiagnoseRequest

APPROVE = "Is this the fix to make? Nothing is changed before you confirm it."
SHOWN = 5  # diagnoses in an answer
LEFT = 100  # files that were left aside, by name


def outcome_of(logs: Sequence[Evidence], start: order.First, found: Sequence[Candidate], question: str) -> str:
    """``diagnosed``; else ``consequence``, ``unrecognised`` or ``no_failure``.

    A consequence is all there is where the lines only notice the failure of another rank.
    """
    if any(one.diagnosis.kind != "cascade" for one in found):
        return "diagnosed"
    if found:
        noticed = {(shown.file, shown.line) for one in found for shown in one.evidence}
        own = [one for one in start.raised if kind_of(one) == "own" and (one.file, one.line) not in noticed]
        return "unrecognised" if own else "consequence"
    failed = start.raised or start.failed or any(log.fatal for log in logs)
    return "unrecognised" if failed or question else "no_failure"


def record(
    request: DiagnoseRequest,
    resolved: Resolved,
    inputs: list[Input],
    left: list[str],
    logs: list[Evidence],
    start: order.First,
    found: list[Candidate],
    facts: Sequence[Fact] = (),
) -> Guidance:
    """The whole answer."""
    release = resolved.release
    found = found or _only_noticed(start)
    outcome = outcome_of(logs, start, found, request.question)
    kept = [one for one in found if one.diagnosis.kind != "cascade"][:SHOWN] if outcome == "diagnosed" else []
    noticed = [] if outcome == "diagnosed" else found[:3]
    decisions = [
        Decision(one.diagnosis.id, one.diagnosis.fix, (one.diagnosis.cause,), sources=one.diagnosis.claims)
        for one in kept
    ]
    cited = cite(decisions, release)
    of = {decision.id: decision.sources for decision in cited.decisions}
    snippets: list[Snippet] = []
    for one in kept:
        for name in one.diagnosis.patterns:
            snippet = pattern_store.snippet(name, release.version) if release.version else None
            if snippet is not None and snippet not in snippets:
                snippets.append(snippet)
    seen = [
        _contents(inputs, logs),
        [(path, _digest(path)) for path in request.code],
        left,
        request.question,
        request.anonymise,
    ]
    identity = digest("diagnose", seen, release.version, cited.knowledge)
    checks = [*_checks(kept, outcome), *cited.checks]
    raised = start.raised or tuple(one for log in logs for one in log.fatal)
    next_, approval = closing("diagnose", identity, APPROVE, False, bool(kept), checks, _next(kept))
    if outcome != "diagnosed":
        next_ = asked.leads(outcome, bool(raised), bool(inputs))
    answers = {"torch": Answer(release.version, release.known_from)} if release.version else {}
    read_ = [
        {"file": log.file, "rank": log.rank, "bytes": log.size, "lines": log.lines, "problem": log.problem}
        for log in logs
    ]
    return Guidance(
        workflow="diagnose",
        id=identity,
        torch=release,
        status="complete" if outcome == "diagnosed" else "partial",
        answers=answers,
        questions=asked.questions(outcome, bool(inputs)),
        facts=tuple(facts),
        snippets=tuple(snippets),
        checks=tuple(checks),
        sources=cited.sources,
        next=next_,
        done=(
            f"{len(inputs)} file{'s' if len(inputs) != 1 else ''} read",
            *(f"{path} was opened through fsspec" for path in request.paths if "://" in path and scheme(path)),
        ),
        not_done=(*_some(left), *(log.problem for log in logs if log.problem), *cited.not_confirmed),
        approval=approval,
        request=digest("diagnose", seen),
        extra={
            "outcome": outcome,
            "diagnoses": [shown(one, of.get(one.diagnosis.id, ())) for one in kept],
            "consequences": [shown(one, ()) for one in noticed],
            "raised": [
                {
                    "file": one.file,
                    "line": one.line,
                    "rank": one.rank,
                    "kind": one.kind,
                    "message": privacy.mask(one.message)[:300],
                }  # a secret must not be cut before it is known as one
                for one in raised[:8]
            ],
            "read": read_[:64],
            "versions": versions.from_logs(logs),
            "notes": _notes(outcome, noticed, inputs),
        },
    )


def _only_noticed(start: order.First) -> list[Candidate]:
    """What to call exceptions that all say no more than that another process is gone, in words that stand in healthy logs too."""
    if not start.raised or start.failed or any(kind_of(one) != "noticed" for one in start.raised):
        return []
    lines = tuple(line(one) for one in start.raised[:3])
    ranks = tuple(sorted({one.rank for one in start.raised if one.rank is not None}))
    return [Candidate(diagnosis_store.get("peer_connection_lost"), "certain", ranks, lines, 0)]


def shown(one: Candidate, sources: Sequence[str]) -> dict[str, Any]:
    """A diagnosis as it stands in the record."""
    diagnosis = one.diagnosis
    return {
        "id": diagnosis.id,
        "title": diagnosis.title,
        "confidence": one.confidence,
        "ranks": list(one.ranks),
        "evidence": [line._asdict() for line in one.evidence],
        "place": one.place,
        "cause": diagnosis.cause,
        "tell": diagnosis.tell,
        "fix": diagnosis.fix,
        "snippet": diagnosis.patterns[0] if diagnosis.patterns else "",
        "check": diagnosis.check,
        "next_evidence": diagnosis.next,
        "sources": [*sources, *(url for _, url in diagnosis.sources)],
    }


def _contents(inputs: Sequence[Input], logs: Sequence[Evidence]) -> list[tuple[str, str, str]]:
    """Every input with what identifies its bytes."""
    known = {log.file: log.digest for log in logs}
    return [(one.path, one.kind, known.get(one.path) or _digest(one.path)) for one in inputs]


def _digest(path: str) -> str:
    from shardguide.readers.logs.digest import of_file

    if path == "-" or os.path.isdir(path):  # noqa: PTH112
        return ""
    try:
        return of_file(path)
    except UnusableInput as error:
        return str(error)


def _notes(outcome: str, noticed: Sequence[Candidate], inputs: Sequence[Input]) -> list[str]:
    if outcome == "unrecognised" and not inputs:
        return ["The question fits no diagnosis. Hand over the log of the failure, or ask with the words of its error."]
    if outcome == "consequence":
        return asked.consequence(noticed)
    return [f"Beside it, only a consequence: {one.diagnosis.title}." for one in noticed]


def _some(left: list[str]) -> list[str]:
    return left if len(left) <= LEFT else [*left[:LEFT], f"{len(left) - LEFT:,} more files left aside"]


def _checks(kept: list[Candidate], outcome: str) -> list[Check]:
    """Check ``pattern``: every fix shown belongs to words that were found, and these are shown with it."""
    if not kept:
        said = "only a consequence was found" if outcome == "consequence" else outcome.replace("_", " ")
        return [Check("pattern", "unknown", f"No diagnosis: {said}.")]
    bare = [one.diagnosis.id for one in kept if not one.evidence]
    if bare:
        return [Check("pattern", "failed", f"No line speaks for {', '.join(bare)}.")]
    first_ = kept[0]
    at = first_.evidence[0]
    return [
        Check(
            "pattern",
            "passed",
            f"{first_.diagnosis.id} rests on {at.file}{f':{at.line}' if at.line else ''}; every other one on lines of its own.",
        )
    ]


def _next(kept: list[Candidate]) -> tuple[Next, ...]:
    return tuple(
        Next("explain", {"topic": one.diagnosis.patterns[0]}, one.diagnosis.title)
        for one in kept[:1]
        if one.diagnosis.patterns
    )
