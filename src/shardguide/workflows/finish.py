"""From decisions to a Guidance, for the workflows that need no model and no cluster."""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.hints import Any
from shardguide.guidance.record import (
    Answer,
    Approval,
    Check,
    Decision,
    Guidance,
    Next,
    Question,
    Snippet,
    Source,
)
from shardguide.guidance.serialise import digest

from .gather import Gathered
from .release import Resolved
from .sources import cite


def answers_of(gathered: Gathered, resolved: Resolved) -> dict[str, Answer]:
    """What is known, the release among it, sorted by name."""
    answers = {name: answer for name, answer in gathered.answers.items() if name != "torch"}
    if resolved.release.version:
        answers["torch"] = Answer(resolved.release.version, resolved.release.known_from)
    return dict(sorted(answers.items()))


def closing(
    workflow: str,
    identity: str,
    approve: str,
    waiting: bool,
    decided: bool,
    checks: Iterable[Check],
    next_: tuple[Next, ...],
) -> tuple[tuple[Next, ...], Approval]:
    """What leads on, and what is put to the user: nothing while a question is open, and nothing that a check refuses."""
    if waiting or not decided:
        return (Next(workflow, {}, f"answer the questions and call {workflow} again"),), Approval("draft", "")
    if any(check.refuses for check in checks):
        return next_, Approval("draft", "")
    return (*next_, Next("approve", {"id": identity}, "confirm it for use")), Approval("draft", approve)


def finish(
    workflow: str,
    resolved: Resolved,
    gathered: Gathered,
    questions: list[Question],
    decisions: list[Decision],
    checks: list[Check],
    snippets: list[Snippet],
    *,
    approve: str,
    inputs: list[Any],
    beside: dict[str, tuple[Source, ...]],
    extra: dict[str, Any],
    notes: list[str],
    next_: tuple[Next, ...],
) -> Guidance:
    """The record: sources looked up, identity worked out, done and not done said.

    ``inputs`` is what identifies the request beside its answers; ``beside`` holds, by decision, sources that are no claims.
    """
    release = resolved.release
    cited = cite(decisions, release)
    answers = answers_of(gathered, resolved)
    said = sorted((name, answer.value) for name, answer in answers.items() if name != "torch")
    identity = digest(workflow, said, inputs, release.version, cited.knowledge)
    made = tuple(
        one._replace(sources=(*one.sources, *(source.id for source in beside.get(one.id, ()))))
        for one in cited.decisions
    )
    more = {source.id: source for one in made for source in beside.get(one.id, ())}
    where = release.path or "the shipped index"
    done = []
    if made:
        done.append(f"{len(made)} decision{'s' if len(made) > 1 else ''}")
    if cited.total:
        done.append(f"{cited.found} of {cited.total} cited claims found again in {where}")
    not_done = [] if made else ["decisions: too little is known"]
    not_done += [f"{question.id}: not answered" for question in questions]
    waiting = bool(questions)
    next_, approval = closing(workflow, identity, approve, waiting, bool(made), checks, next_)
    return Guidance(
        workflow=workflow,
        id=identity,
        torch=release,
        status="needs_answers" if waiting else "partial" if not made else "complete",
        answers=answers,
        questions=tuple(questions),
        decisions=made,
        snippets=tuple(snippets),
        checks=(*checks, *cited.checks),
        sources=(*cited.sources, *more.values()),
        next=next_,
        done=tuple(done),
        not_done=(*not_done, *cited.not_confirmed),
        approval=approval,
        request=digest(workflow, said, inputs),
        extra={**extra, "notes": notes},
    )
