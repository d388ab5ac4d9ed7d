"""From a question to what answers it: full-text rows, weighed and summed for each target."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import ask_store

from .reading import Question
from .stated import Stated

OUTSIDE = "outside:"
DIAGNOSE = "workflow:diagnose"

# How much each index counts; found by leaving out a sixth of the phrasings in turn and on the development questions
# (tests/ask/dev.jsonl), never on held-out ones.
COLUMNS = (6.0, 3.0, 2.0, 0.3)  # title, words, asks and claims of a page
PHRASING = 0.5  # the nearest phrasing
SECOND = 0.2  # the next one
CLAIM = 0.4
PATTERN = 0.3
ERROR = 6.0  # to diagnose, when an error was pasted
# What speaks for and against a question being the field's.
STRONG = 10.0  # each word of distributed PyTorch, up to three
WEAK = 3.0  # each word that others use too, up to four
HARD = 30.0  # against: a subject of others is named
ENOUGH = 11.0


class Ranked(NamedTuple):
    """A target with its score, and the rows behind it."""

    target: str
    score: float
    bonus: float  # what of it turns of phrase have added, which say nothing about whether this is the field at all
    claims: tuple[str, ...]  # the best first
    patterns: tuple[str, ...]


def expression(question: Question) -> str:
    """Any of the words, phrases and what stands beside them, as an FTS5 expression; "" for none."""
    quoted = dict.fromkeys(f'"{words}"' for words in (*question.words, *question.phrases, *question.said))
    return " OR ".join(quoted)


def rank(question: Question, told: Stated | None = None, names: int = 0) -> list[Ranked]:
    """Every target that has some of the words, the best first, the subjects of others among them.

    ``told`` is what the question states, ``names`` how many names of the API stand in it.
    """
    wanted = expression(question)
    if not wanted:
        return []
    scores: dict[str, float] = {}
    claims: dict[str, list[str]] = {}
    patterns: dict[str, list[str]] = {}
    for row in ask_store.search("pages", wanted, 60, COLUMNS):
        scores[row.targets[0]] = row.score
    seen: dict[str, int] = {}
    for row in ask_store.search("asks", wanted, 60):
        target = row.targets[0]
        seen[target] = seen.get(target, 0) + 1
        if seen[target] <= 2:
            scores[target] = scores.get(target, 0.0) + (PHRASING if seen[target] == 1 else SECOND) * row.score
    for row in ask_store.search("claims", wanted, 40):
        for target in row.targets:
            if target not in claims:
                scores[target] = scores.get(target, 0.0) + CLAIM * row.score / len(row.targets) ** 0.5
            claims.setdefault(target, []).append(row.id)
    for row in ask_store.search("patterns", wanted, 20):
        for target in row.targets:
            if target not in patterns:
                scores[target] = scores.get(target, 0.0) + PATTERN * row.score
            patterns.setdefault(target, []).append(row.id)
    if question.error:
        scores[DIAGNOSE] = scores.get(DIAGNOSE, 0.0) + ERROR
    bonuses = _intents(question, told, names) if told is not None else {}
    for target, bonus in bonuses.items():
        scores[target] = scores.get(target, 0.0) + bonus
    order = sorted(scores, key=lambda target: (-scores[target], target))
    return [
        Ranked(
            target,
            scores[target],
            bonuses.get(target, 0.0),
            tuple(claims.get(target, ())),
            tuple(patterns.get(target, ())),
        )
        for target in order
    ]


def _intents(question: Question, told: Stated, names: int) -> dict[str, float]:
    """What turns of phrase add to what they ask for."""
    has = {
        "": True,
        "name": bool(names),
        "size": bool(told.size),
        "gpus": bool(told.gpus or told.nodes) and bool(told.size or told.gpu),
        "releases": len(told.releases) > 1,
    }
    found: dict[str, float] = {}
    for target, needs, bonus, phrases in ask_store.words("intents"):
        if has[needs] and any(all(f" {part} " in question.spaced for part in phrase) for phrase in phrases):
            found[target] = max(found.get(target, 0.0), bonus)
    return found


def evidence(question: Question, ranked: list[Ranked], names: int) -> float:
    """How much speaks for the question being the field's; it is answered from ``ENOUGH`` on."""
    ours = max((one.score - one.bonus for one in ranked if not one.target.startswith(OUTSIDE)), default=0.0)
    others = next((one.score for one in ranked if one.target.startswith(OUTSIDE)), 0.0)
    known = STRONG * min(question.strong + names, 3) + WEAK * min(question.weak, 4)
    return ours - others + known - HARD * bool(question.hard)
