"""``ask``: a question in the user's words goes to the page, command or reference that answers it, or is honestly not known.

Retrieval only: every sentence about PyTorch is a claim, looked up for the user's release before it is shown. Nothing is put together
from several, and the question is data that nobody follows.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Answer, Approval, Check, Claim, Guidance, Next, Release, Snippet, Source
from shardguide.guidance.serialise import digest
from shardguide.installed.verify import claims
from shardguide.knowledge import ask_store, claims_store, pattern_store, releases, topic_store

from ..fields import TORCH
from ..release import Resolved, resolve
from ..sources import about, confirmed, knowledge_version, statements
from . import rank as ranking
from .hits import NEAR, WORKFLOW, Hit, hits
from .names import named
from .rank import OUTSIDE, Ranked
from .reading import LONGEST, Question, read
from .stated import Stated, stated

APPROVE = "Is this the code to use? It is a draft until you confirm it."
STATEMENTS = 5
BY_RELEASE = "fsdp2-by-release"
CLOSE = 0.5  # of the best target's score: statements are shown only from a page that is near it
ANSWERS = 0.25  # what the page says first is worth a quarter of the question's words
ELSEWHERE = 0.3
LIBRARIES = ("accelerate", "torchtitan")
FORM_WORDS = frozenset({"fsdp", "fsdp1", "fsdp2", "ddp", "pytorch", "torch"})  # which many statements of a page have
# Claims about one of the two are no answer where only the other is asked about.
FORMS = {"fsdp1": ("fsdp2.", "mp2.", "offload2."), "fsdp2": ("fsdp1.", "offload1.")}
PAGES, FOUND = 5, 8  # that a search shows, of pages and of each other kind


class AskRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    question: str
    torch: str | None = None
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    site_packages: str | None = None


def ask(request: AskRequest) -> Guidance:
    """What the sources say to a question.

    Raises UnusableInput for a question without a word in it, or one that is too long.
    """
    text = request.question.strip()
    if len(text) > LONGEST:
        raise UnusableInput(f"a question has up to {LONGEST} characters; a log goes to shardguide diagnose FILE.")
    question = read(text)
    if not ask_store.plain(text):
        raise UnusableInput(
            'ask needs a question in English words, for example: shardguide ask "how do I clip gradients?".'
        )
    told = stated(text)
    in_question = told.releases[0] if len(told.releases) == 1 and not request.torch else None
    resolved = resolve(request.torch or in_question, request.site_packages, request.remembered.get(TORCH.name))
    names = named(question.names, resolved.release.version)
    ranked = ranking.rank(question, told, len(names))
    known = ranking.evidence(question, ranked, len(names)) >= ranking.ENOUGH
    ours = [one for one in ranked if not one.target.startswith(OUTSIDE)]
    if not known or not ours:
        return _not_known(text, question, ranked, resolved)
    return _answer(text, question, told, hits(question, told, names, ours), ours, resolved, bool(in_question))


def _answer(
    text: str,
    question: Question,
    told: Stated,
    found: list[Hit],
    ranked: list[Ranked],
    resolved: Resolved,
    in_question: bool,
) -> Guidance:
    release = resolved.release
    best = next(
        (one for one in ranked if not one.target.startswith(WORKFLOW) and one.target in topic_store.titles()), None
    )
    if best is not None and best.score < CLOSE * ranked[0].score:
        best = None  # a command answers, and no page is about the question
    looked_up = _claims(question, best, release)
    sources: dict[str, Source] = {source.id: source for claim in looked_up for source in claim.sources}
    snippets = _snippets(question, best, release)
    identity = digest("ask", text, release.version, ask_store.version(), knowledge_version())
    steps, taken = [], set()
    for hit in found[:NEAR]:
        if hit.next is not None and (hit.next.tool, hit.id) not in taken:
            taken.add((hit.next.tool, hit.id))
            steps.append(hit.next)
    if snippets:
        steps.append(Next("approve", {"id": identity}, "confirm the code for use"))
    # A release that only this question names is no answer for the project: it stands in ``torch``.
    answers = {"torch": Answer(release.version, release.known_from)} if release.version and not in_question else {}
    missing = [claim.text for claim in looked_up if release.version and claim.status == "not confirmed"]
    return Guidance(
        workflow="ask",
        id=identity,
        torch=release,
        status="needs_answers" if resolved.questions else "complete",
        answers=answers,
        questions=resolved.questions,
        snippets=tuple(snippets),
        checks=_checks(looked_up, snippets, release),
        sources=tuple(sources.values()),
        next=tuple(steps),
        done=(f"{len(looked_up)} statement{'s' if len(looked_up) != 1 else ''} looked up",),
        not_done=(
            *(f"{asked.id}: not answered" for asked in resolved.questions),
            *(f"not confirmed for this release: {words}" for words in missing),
        ),
        approval=Approval("draft", APPROVE if snippets else ""),
        request=digest("ask", text),
        extra={
            "question": text,
            "outcome": "answered",
            "hits": [hit.shown() for hit in found],
            "statements": statements(looked_up, release),
            "needed": [],
            "notes": _notes(best, release, in_question),
        },
    )


def _notes(best: Ranked | None, release: Release, in_question: bool) -> list[str]:
    notes = [f"release {release.version} is taken from the question"] if in_question else []
    if best is not None and best.target == BY_RELEASE and release.version:
        # The one fact that the question is mostly about, and that no claim of that release's own sources can state.
        path = releases.fsdp2_path(release.version)
        has = f"exports FSDP2's fully_shard from {path}" if path else "has no FSDP2"
        notes.append(f"PyTorch {release.version} {has}, by the index of every release's API")
    return notes


def _claims(question: Question, best: Ranked | None, release: Release) -> list[Claim]:
    """The statements of the best page: those that have the question's words, then the page's own answer."""
    if best is None:
        return []
    topic = topic_store.get(best.target)
    page = {*topic.answer, *(claim for section in topic.sections for claim in section.claims)}
    matched = [claim for claim in best.claims if claim in page]
    form = _form(question)
    other = FORMS[form] if form else ()
    kept = [
        claim
        for claim in dict.fromkeys((*matched, *topic.answer))
        if not claim.startswith(other) and (not release.version or about(claim, release))
    ]
    kept.sort(key=lambda claim: -_share(question, claim) - (ANSWERS if claim in topic.answer else 0.0))
    return list(claims(kept[:STATEMENTS], release).values())


def _share(question: Question, claim: str) -> float:
    """The share of a question's words that a statement has; what is said of a library that was not asked about counts less."""
    said = set(ask_store.plain(claims_store.get(claim).text).split())
    asked = dict.fromkeys(word for word in question.words if word not in FORM_WORDS) or question.words
    share = (sum(word in said for word in asked) + 0.5 * sum(word in said for word in question.said)) / max(
        len(asked), 1
    )
    return share - sum(ELSEWHERE for name in LIBRARIES if name in said and name not in question.words)


def _form(question: Question) -> str:
    """Which of FSDP1 and FSDP2 is asked about; "" for both, or neither."""
    forms = [form for form in FORMS if form in question.words or form in question.said]
    return forms[0] if len(forms) == 1 else ""


def _snippets(question: Question, best: Ranked | None, release: Release) -> list[Snippet]:
    """The best pattern of the page, where code was asked for."""
    if best is None or not release.version or not set(ask_store.words("code")) & set(question.spaced.split()):
        return []
    of_topic = pattern_store.of_topic(best.target)
    wanted = _form(question)
    other = [form for form in FORMS if wanted and form != wanted]
    for name in dict.fromkeys((*(name for name in best.patterns if name in of_topic), *of_topic)):
        if pattern_store.get(name).form in other:
            continue
        snippet = pattern_store.snippet(name, release.version)
        if snippet is not None:
            return [snippet]
    return []


def _checks(looked_up: list[Claim], snippets: list[Snippet], release: Release) -> tuple[Check, ...]:
    """Check ``sources``: every statement stands in this release; check ``snippets``: the code parses, and its API is there."""
    made = []
    if looked_up:
        made.append(confirmed(looked_up, release))
    for one in snippets:
        good_code = one.verified.parses and one.verified.api
        words = f"{one.id} parses and uses only what PyTorch {release.version} has"
        words += f"; executed with {one.verified.executed}." if one.verified.executed else "; it was not executed."
        made.append(Check("snippets", "passed" if good_code else "failed", words))
    return tuple(made)


def _not_known(text: str, question: Question, ranked: list[Ranked], resolved: Resolved) -> Guidance:
    """An honest no: what was understood, and what would be needed."""
    release = resolved.release
    identity = digest("ask", text, release.version, ask_store.version(), knowledge_version())
    strange = next((one for one in ranked if one.target.startswith(OUTSIDE)), None)
    subject = next(iter(question.hard), strange.target[len(OUTSIDE) :] if strange and strange == ranked[0] else "")
    needed = []
    if subject:
        title = ask_store.title(f"{OUTSIDE}{subject}")
        needed.append(f"It reads like a question about {title}; Shardguide knows PyTorch's distributed training only.")
    needed += [
        "The part of it that is about FSDP, DDP, DTensor, checkpoints, process groups or their launch, in PyTorch's words.",
        "Or the text of the error or log (shardguide diagnose FILE), or the name of the function (shardguide docs api NAME).",
        "Or the official documentation that it is about, and the PyTorch release.",
    ]
    return Guidance(
        workflow="ask",
        id=identity,
        torch=release,
        status="partial",
        answers={},
        next=(Next("explain", {}, "the list of what there is"),),
        done=(f"{len(question.words)} words looked for",),
        not_done=("the question: not known here",),
        approval=Approval("draft", ""),
        request=digest("ask", text),
        extra={
            "question": text,
            "outcome": "not_known",
            "hits": [],
            "statements": [],
            "needed": needed,
            "notes": [f"looked for: {', '.join(question.words[:12])}"] if question.words else [],
        },
    )


def search(words: str) -> dict[str, Any]:
    """Where words stand in the reference: pages, statements and code, the best first.

    Raises UnusableInput for more than a question may have.
    """
    if len(words) > LONGEST:
        raise UnusableInput(f"a search has up to {LONGEST} characters.")
    question = read(words)
    wanted = ranking.expression(question)
    titles = topic_store.titles()
    found: list[dict[str, Any]] = []
    ranked = [one for one in ranking.rank(question) if one.target in titles]
    pages = [one.target for one in ranked[:PAGES] if one.score >= CLOSE * ranked[0].score]
    name = "-".join(question.spaced.split())
    for page in dict.fromkeys(
        (*([name] if name in titles else []), *pages)
    ):  # one that is asked for by its name goes first
        found.append({"kind": "topic", "id": page, "title": titles[page][1], "topic": page, "text": ""})
    for kind, table in (("claim", "claims"), ("pattern", "patterns")) if wanted else ():
        for row in ask_store.search(table, wanted, FOUND):
            if not row.targets:
                continue
            text = claims_store.get(row.id).text if kind == "claim" else ""
            title = titles[row.targets[0]][1] if kind == "claim" else pattern_store.get(row.id).title
            found.append({"kind": kind, "id": row.id, "title": title, "topic": row.targets[0], "text": text})
    return {"query": words, "found": found}
