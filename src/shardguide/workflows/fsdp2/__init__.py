"""Workflow W5, FSDP2: whether to adopt it, for which release, what it does for each goal, and how FSDP1 code is carried over."""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Check, Guidance, Next, Question, Snippet
from shardguide.guidance.serialise import plain
from shardguide.knowledge import api, fsdp2_mapping, pattern_store, releases

from ..fields import TORCH
from ..finish import finish
from ..gather import Gathered, ask, gather
from ..release import resolve
from . import adopt, goals, tables
from .adopt import Case
from .fields import CURRENT, FIELDS, GOAL

APPROVE = "Is this how FSDP2 is to be adopted? Nothing is adopted before you confirm it."
WITHOUT = "Is this how to go on in a release without FSDP2? Nothing is changed before you confirm it."


class Fsdp2Request(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    given: dict[str, Any]  # by field name, as text or value
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None


def _questions(gathered: Gathered, open_: tuple[Question, ...]) -> list[Question]:
    asked = [*open_, *gathered.conflicts]
    if not gathered.value(GOAL.name):
        asked.append(ask(GOAL))
    return asked


def _patterns(case: Case) -> list[Snippet]:
    """The patterns of the goals, in the release's spelling, as far as it can run them."""
    known = set(pattern_store.ids())
    found = [pattern_store.snippet(one, case.release) for one in goals.patterns(case) if one in known]
    return [one for one in found if one is not None]


def _notes(gathered: Gathered, case: Case, migrating: bool) -> list[str]:
    notes = []
    if not case.using:
        notes.append(f"What trains now was not said (--{CURRENT.name}): the advice is for code that starts afresh.")
    if case.has and not migrating and case.using != "ddp":
        notes.append("The mapping of every FSDP1 argument and method: shardguide fsdp2 --goal migrate.")
    return notes


def fsdp2(request: Fsdp2Request) -> Guidance:
    """Adopt FSDP2 or not, what it does for the goals, and how FSDP1 maps to it, in the user's release.

    Raises UnusableInput for answers that cannot be read.
    """
    stated = {name: value for name, value in request.given.items() if value is not None}
    gathered = gather(FIELDS, stated, {}, request.remembered)
    resolved = resolve(stated.get(TORCH.name), request.site_packages, request.remembered.get(TORCH.name))
    questions = _questions(gathered, resolved.questions)
    features = fsdp2_mapping.features()
    release = f"{resolved.minor[0]}.{resolved.minor[1]}" if resolved.minor != (0, 0) else ""
    goal = gathered.value(GOAL.name, "")
    wanted = tuple(goal.split(",")) if goal else ()
    case = Case(release, releases.fsdp2_path(release) if release else "", gathered.value(CURRENT.name, ""), wanted)
    migrating = case.has and case.using != "ddp" and (case.using == "fsdp1" or "migrate" in wanted)
    rows = fsdp2_mapping.rows() if migrating else []
    extra: dict[str, Any] = {
        "comparison": plain(tuple(tables.comparison(features, release))),
        "mapping": plain(tuple(tables.mapping(rows, release))),
    }
    if not release:
        return finish("fsdp2", resolved, gathered, questions, [], [], [], approve=APPROVE, inputs=[], beside={}, extra=extra,
                      notes=[], next_=())  # fmt: skip
    count, absent = tables.missing(features, rows, release)
    lacking = [one for one in features if case.has and not api.holds(release, one.releases2)]
    without = [one for one in rows if one.counterpart == "none" and api.holds(release, one.releases1)]
    mapped = tuple(dict.fromkeys(claim for one in rows for claim in one.claims))
    decided = [adopt.adopt(case, lacking, without), adopt.imported(case), adopt.differences(case, features)]
    decided += [goals.decide(one, case, features, mapped, resolved.release) for one in wanted]
    index = adopt.in_index(case)
    beside = {"adopt": index, "import": index}
    if not case.has:
        beside |= {one.id: index[1:2] for one in decided[3:]}
    guidance = finish(
        "fsdp2", resolved, gathered, questions, decided, [tables.documentation(count, absent, release, None)],
        [adopt.import_snippet(case), *_patterns(case)], approve=APPROVE if case.has else WITHOUT, inputs=[], beside=beside, extra=extra,
        notes=_notes(gathered, case, migrating), next_=_next(case),
    )  # fmt: skip
    return guidance._replace(checks=_with_sources(guidance.checks, count, absent, release))


def _with_sources(checks: tuple[Check, ...], count: int, absent: list[str], release: str) -> tuple[Check, ...]:
    """The check ``documentation`` with what the look-up of the statements found; it stands for ``sources`` too."""
    sources = next((one for one in checks if one.id == "sources"), None)
    return (
        tables.documentation(count, absent, release, sources),
        *(one for one in checks if one.id not in ("documentation", "sources")),
    )


def _next(case: Case) -> tuple[Next, ...]:
    return (Next("plan", {}, "work mesh, groups and dtypes out for your model and cluster"),)
