"""Workflow W4, code patterns and the subjects behind them: one page of statements with their sources, and code that was run."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Check, Claim, Guidance, Next, Release, Snippet, Source
from shardguide.guidance.serialise import digest
from shardguide.installed.verify import claims
from shardguide.knowledge import api, pattern_store, topic_store
from shardguide.knowledge.pattern_store import Pattern
from shardguide.knowledge.topic_store import Topic

from ..fields import TORCH
from ..finish import closing
from ..release import Resolved, resolve
from ..sources import about, confirmed, knowledge_version, statements
from .choose import ARCHITECTURES, FORMS, chosen, find, newest_script

APPROVE = "Is this the code to use? It is a draft until you confirm it."
TABLE = "backend-capabilities"  # the topic that shows the table of backends
_MARKS = {"y": "yes", "n": "no", "?": "?", "~": "not read", "-": ""}
FULL_SCRIPT = "full-script"  # the topic-less request for a whole training script


class ExplainRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    topic: str = ""
    architecture: str = ""  # one of ARCHITECTURES, or "" for all
    form: str = ""  # one of FORMS, or "" for all that the release has
    full_script: bool = False
    torch: str | None = None
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None
    docs: str = ""  # a folder of downloaded documentation, in which pages are opened again


def listing(form: str = "") -> dict[str, Any]:
    """Every topic and pattern, for the list that ``explain`` prints without a topic; with a form, those with code in it.

    Raises UnusableInput for a form that does not exist.
    """
    _known_form(form)
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, (group, title) in topic_store.titles().items():
        patterns = pattern_store.of_topic(name)
        if form:
            patterns = [one for one in patterns if pattern_store.get(one).form == form]
        if patterns or not form:
            groups.setdefault(group, []).append({"id": name, "title": title, "patterns": patterns})
    return {"groups": [{"title": title, "topics": topics} for title, topics in groups.items()]}


def explain(request: ExplainRequest) -> Guidance:
    """The page of a topic for a release.

    Raises UnusableInput for a topic, an architecture or a form that does not exist.
    """
    if request.architecture not in ("", *ARCHITECTURES):
        raise UnusableInput(f"--architecture is one of {', '.join(ARCHITECTURES)}, not {request.architecture[:40]!r}.")
    _known_form(request.form)
    resolved = resolve(request.torch, request.site_packages, request.remembered.get(TORCH.name))
    topic = find(request.topic) if request.topic else None
    form = request.form
    if request.full_script and not form and resolved.release.version:
        form = newest_script(resolved.release.version)
    wanted = chosen(topic, request.architecture, form, request.full_script)
    if topic is None and not wanted:
        raise UnusableInput("explain needs a topic; shardguide explain lists them.")
    return _record(request, resolved, topic, wanted)


def _known_form(form: str) -> None:
    if form not in ("", *FORMS):
        raise UnusableInput(f"--form is one of {', '.join(FORMS)}, not {form[:40]!r}.")


def _record(request: ExplainRequest, resolved: Resolved, topic: Topic | None, wanted: list[str]) -> Guidance:
    release = resolved.release
    page, sources, looked_up = _page(topic, release, request.docs)
    shown, listed = _code(wanted, release)
    answers = {"topic": Answer(topic.id, "user")} if topic else {}
    for name in ("architecture", "form"):
        if getattr(request, name):
            answers[name] = Answer(getattr(request, name), "user")
    if release.version:
        answers["torch"] = Answer(release.version, release.known_from)
    said = sorted((name, answer.value) for name, answer in answers.items() if name != "torch")
    inputs = [said, request.full_script, [(one.id, one.code) for one in shown]]
    known = (topic_store.digest(), pattern_store.digest(), knowledge_version())
    identity = digest("explain", inputs, release.version, known)
    checks = _checks(looked_up, shown, listed, release)
    waiting = bool(resolved.questions)
    next_, approval = closing(
        "explain", identity, APPROVE, waiting, bool(shown), checks, _next(topic, request, release, listed)
    )
    narrowed = " ".join(f"--{name} {getattr(request, name)}" for name in ("architecture", "form") if name in answers)
    missing = [claim.text for claim in looked_up.values() if claim.status == "not confirmed"]
    return Guidance(
        workflow="explain",
        id=identity,
        torch=release,
        status="needs_answers" if waiting else "complete",
        answers=dict(sorted(answers.items())),
        questions=resolved.questions,
        snippets=tuple(shown),
        checks=tuple(checks),
        sources=tuple(sources.values()),
        next=next_,
        done=(_done(looked_up, release), f"{len(shown)} snippet{'s' if len(shown) != 1 else ''}"),
        not_done=(
            *(f"{question.id}: not answered" for question in resolved.questions),
            *(f"not confirmed for this release: {text}" for text in missing),
        ),
        approval=approval,
        request=digest("explain", said, request.full_script),
        extra={"topic": page, "patterns": listed, "notes": _notes(topic, listed, release, narrowed)},
    )


def _page(topic: Topic | None, release: Release, docs: str) -> tuple[Any, dict[str, Source], dict[str, Claim]]:
    """The statements that hold for the release in the topic's order, their sources, and the claims as looked up.

    While the release is unknown every statement is shown, with the releases for which it holds.
    """
    if topic is None:
        return None, {}, {}
    named = [*topic.answer, *(claim for section in topic.sections for claim in section.claims)]
    kept = [claim for claim in named if about(claim, release)] if release.version else named
    looked_up = claims(kept, release, docs)
    sources = {source.id: source for claim in looked_up.values() for source in claim.sources}

    def shown(of: tuple[str, ...]) -> list[dict[str, Any]]:
        return statements((looked_up[claim] for claim in of if claim in looked_up), release)

    sections = [{"title": section.title, "statements": shown(section.claims)} for section in topic.sections]
    if release.version and not shown(topic.answer):  # then the answer is where it holds
        unknown = Release("", "unknown", "")
        elsewhere = claims(topic.answer, unknown)
        sources.update((source.id, source) for claim in elsewhere.values() for source in claim.sources)
        rows = statements(elsewhere.values(), unknown)
        sections.insert(0, {"title": f"Known of other releases, not of PyTorch {release.version}", "statements": rows})
    page: dict[str, Any] = {
        "id": topic.id,
        "title": topic.title,
        "group": topic.group,
        "subjects": list(topic.subjects),
        "answer": shown(topic.answer),
        "sections": [section for section in sections if section["statements"]],
        "see": [{"id": other, "title": topic_store.titles()[other][1]} for other in topic.see],
        "api": [name for name in topic.api if not release.version or api.exists(name, release.version)],
    }
    if topic.id == TABLE and release.version:
        page["table"] = _table(release.version)
    return page, sources, looked_up


def _table(release: str) -> dict[str, Any]:
    """The documentation's table of backends for a release: a row an operation, in the columns that the page has."""
    from shardguide.knowledge import backends, releases

    name = releases.normalise(release)
    whole = backends.table(name)
    rows = [
        {"operation": one, "marks": [_MARKS[backends.cell(one, *column, name).mark] for column in whole.columns]}
        for one in backends.OPERATIONS
    ]
    columns = [f"{backend} {kind.upper()}" for backend, kind in whole.columns]
    return {"releases": whole.releases, "title": whole.title, "url": whole.url, "columns": columns, "rows": rows}


def _code(wanted: list[str], release: Release) -> tuple[list[Snippet], list[dict[str, Any]]]:
    """The snippets that the release has everything for, and every pattern with what it follows and where it is offered."""
    shown: list[Snippet] = []
    listed: list[dict[str, Any]] = []
    for name in wanted:
        pattern = pattern_store.get(name)
        snippet = pattern_store.snippet(name, release.version) if release.version else None
        if snippet is not None:
            shown.append(snippet)
        listed.append(_listed(pattern, snippet is not None))
    return shown, listed


def _listed(pattern: Pattern, offered: bool) -> dict[str, Any]:
    return {
        "id": pattern.id,
        "title": pattern.title,
        "form": pattern.form,
        "architecture": pattern.architecture,
        "releases": pattern.releases,
        "offered": offered,
        "follows": list(pattern.follows),
        "departs": pattern.departs,
        "run_with": dict(pattern.run),
        "not_run": pattern.not_run,
    }


def _checks(
    looked_up: dict[str, Claim], shown: list[Snippet], listed: list[dict[str, Any]], release: Release
) -> list[Check]:
    """Check ``sources`` (every statement stands in this release) and check ``snippets`` (they parse, and the API is there)."""
    made = []
    if looked_up:
        made.append(confirmed(looked_up.values(), release))
    if shown:
        run = sum(bool(one.verified.executed) for one in shown)
        good = all(one.verified.parses and one.verified.api for one in shown)
        words = f"{len(shown)} parse and use only what PyTorch {release.version} has; {run} of them were executed"
        made.append(Check("snippets", "passed" if good else "failed", f"{words}."))
    elif listed:
        made.append(Check("snippets", "unknown", "No snippet is shown for this release."))
    return made


def _done(looked_up: dict[str, Claim], release: Release) -> str:
    again = sum(claim.status in ("found", "index") for claim in looked_up.values()) if release.version else 0
    return f"{again} of {len(looked_up)} statements found again in {release.path or 'the shipped index'}"


def _notes(topic: Topic | None, listed: list[dict[str, Any]], release: Release, narrowed: str) -> list[str]:
    notes = []
    if topic and narrowed and not listed and pattern_store.of_topic(topic.id):
        notes.append(f"There is code for this subject, but none for {narrowed}: leave it out to see it.")
    lacking = [one for one in listed if not one["offered"]] if release.version else []
    for one in lacking:
        has = f"it needs what PyTorch {one['releases']} has" if one["releases"] else "no release has all of it"
        notes.append(f"{one['id']} is not shown for {release.version}: {has}.")
    return notes


def _next(
    topic: Topic | None, request: ExplainRequest, release: Release, listed: list[dict[str, Any]]
) -> tuple[Next, ...]:
    steps = []
    if topic is not None:
        if topic.workflow:
            steps.append(Next(topic.workflow, {}, "work it out for your case"))
        steps += [Next("explain", {"topic": other}, topic_store.titles()[other][1]) for other in topic.see]
    if not request.full_script:
        steps.append(Next("explain", {"full_script": True}, "a whole training script, only when you ask for it"))
    return tuple(steps)
