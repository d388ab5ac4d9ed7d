"""``--question``: what people say happens, compared with the symptoms, titles and causes of all diagnoses.

Words alone prove nothing: a diagnosis that only the question speaks for is "possible", and there is none where the question
shares too little with any. Beside logs the question decides between diagnoses that the same lines allow.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardguide.guidance.hints import Any
from shardguide.knowledge import diagnosis_store
from shardguide.knowledge.symptom_index import SCALE, tokens

from .match import LEVELS, Candidate, Shown

SHOWN = 3  # diagnoses that a question alone gives
LEAST = 0.34  # of what the question's words could score at most, by one diagnosis
FEWEST = 2  # words in common with its title and symptoms
NEAR = 0.75  # of the best score: as well possible


def scores(question: str, terms: dict[str, Any], names: Sequence[str]) -> tuple[dict[str, float], dict[str, int]]:
    """For every diagnosis that shares words with the question: its share of the possible score, and how many words it names."""
    words = dict.fromkeys(tokens(question))
    rarity = terms.get("@idf", {})
    unknown = max(rarity.values(), default=0)
    # A word that no diagnosis has counts as much as a rare one: the question speaks of something else.
    most = sum(rarity.get(word, unknown) for word in words) * 2.2 / SCALE
    total: dict[int, float] = {}
    shared: dict[int, int] = {}
    for word in words:
        postings = terms.get(word, ())
        for at, weight, named in zip(postings[::3], postings[1::3], postings[2::3], strict=True):
            total[at] = total.get(at, 0) + weight / SCALE
            shared[at] = shared.get(at, 0) + named
    if not most:
        return {}, {}
    return (
        {names[at]: score / most for at, score in total.items()},
        {names[at]: number for at, number in shared.items()},
    )


def with_question(found: list[Candidate], question: str) -> list[Candidate]:
    """The candidates of the logs, those that the question fits before those that it does not; and those that it alone gives."""
    if not question.strip():
        return found
    return weighed(found, question, diagnosis_store.terms(), diagnosis_store.ids())


def weighed(found: list[Candidate], question: str, terms: dict[str, Any], names: Sequence[str]) -> list[Candidate]:
    """The same with an index handed over."""
    share, shared = scores(question, terms, names)
    best = max(share.values(), default=0)
    enough = {name for name, score in share.items() if score >= LEAST and shared[name] >= FEWEST}
    out = []
    for one in found:
        score = share.get(one.diagnosis.id, 0)
        level = one.confidence
        if one.diagnosis.id in enough and score >= NEAR * best and one.confidence == "possible":
            level = "likely"  # lines and words agree
        out.append(one._replace(confidence=level, weight=one.weight + 10 * score))
    known = {one.diagnosis.id for one in found}
    told = Shown("question", 0, " ".join(question.split())[:300])
    alone = sorted(
        (name for name in enough - known if share[name] >= NEAR * best), key=lambda name: (-share[name], name)
    )
    for name in alone[:SHOWN]:
        diagnosis = diagnosis_store.get(name)
        # Lines that leave several causes of one family open allow this one as well.
        open_ = [one for one in found if one.diagnosis.family == diagnosis.family and one.confidence == LEVELS[-1]]
        beside = max(open_, key=lambda one: one.weight) if open_ else None
        lines, weight, ranks = (beside.evidence, beside.weight, beside.ranks) if beside else ((), 0.0, ())
        out.append(
            Candidate(diagnosis, LEVELS[-1], ranks, (*lines, told), weight + 10 * share[name], ("~", 0), "", True)
        )
    return out
