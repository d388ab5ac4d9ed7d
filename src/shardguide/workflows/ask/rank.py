"""From a question to what answers it: full-text rows, weighed and summed for each target."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import ask_store

from .reading import Question

OUTSIDE = "outside:"
DIAGNOSE = "workflow:diagnose"

# How much each index counts; found on the development questions (tests/ask/dev.jsonl), never on the held-out ones.
PAGE = 1.0
COLUMNS = (6.0, 3.0, 2.0, 0.8)  # title, words, asks and claims of a page
PHRASING = 1.3  # the nearest phrasing
SECOND = 0.2  # the next one
CLAIM = 0.4
PATTERN = 0.3
ERROR = 6.0  # to diagnose, when an error was pasted


class Ranked(NamedTuple):
    """A target with its score, and the rows behind it."""

    target: str
    score: float
    claims: tuple[str, ...]
    patterns: tuple[str, ...]


def expression(question: Question) -> str:
    """Any of the words, phrases and what stands beside them, as an FTS5 expression; "" for none."""
    quoted = dict.fromkeys(f'"{words}"' for words in (*question.words, *question.phrases, *question.said))
    return " OR ".join(quoted)


def rank(question: Question) -> list[Ranked]:
    """Every target that has some of the words, the best first."""
    wanted = expression(question)
    if not wanted:
        return []
    scores: dict[str, float] = {}
    claims: dict[str, list[str]] = {}
    patterns: dict[str, list[str]] = {}
    for row in ask_store.search("pages", wanted, 60, COLUMNS):
        scores[row.targets[0]] = PAGE * row.score
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
    order = sorted(scores, key=lambda target: (-scores[target], target))
    return [
        Ranked(target, scores[target], tuple(claims.get(target, ())), tuple(patterns.get(target, ()))) for target in order
    ]
