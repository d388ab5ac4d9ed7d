"""``--question``: what people say happens, compared with the symptoms, titles and causes of all diagnoses.

Words alone prove nothing: a diagnosis that only the question speaks for is "possible", and there is none where the question
shares too little with any. Beside logs the question decides between diagnoses that the same lines allow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.hints import Any
from shardguide.knowledge import diagnosis_store
from shardguide.knowledge.symptom_index import SCALE, tokens

from .match import LEVELS, Candidate, Shown

SHOWN = 3  # diagnoses that a question alone gives
LEAST = 0.34  # of what the question's words could score at most, by one diagnosis
FEWEST = 2  # words in common with its title and symptoms
CLEAR = 7.0  # of ten, the weight of a question's words that are nearly all a diagnosis's own
NEAR = 0.75  # of the best score: as well possible
CLAUSE = 3  # words that a part of a question must have to stand for itself
# What is said beside what happens: the model's size and the hardware.
_CASE = re.compile(
    r"\b\d+(?:\.\d+)? ?b\b(?: model)?|"
    r"\b\d+ ?[x×]? ?(?:nodes?|machines?|hosts?|servers?|gpus?|cards?|[abhltv]\d{1,3}[a-z]?s?|mi\d{3}[ax]?)\b(?: each)?",
    re.IGNORECASE,
)
_ORDINALS = ((re.compile(r"\b1st\b", re.IGNORECASE), "first"), (re.compile(r"\b2nd\b", re.IGNORECASE), "second"))
_BETWEEN = re.compile(r"[,;!?]\s|\.\s|\n")


def parts(question: str) -> list[str]:
    """What is asked without the case it is asked for, whole, and each part of it that says enough by itself."""
    text = _CASE.sub(" ", question)
    for pattern, word in _ORDINALS:
        text = pattern.sub(word, text)
    clauses = [one for one in _BETWEEN.split(text) if len(dict.fromkeys(tokens(one))) >= CLAUSE]
    return [text, *(clauses if len(clauses) > 1 or clauses != [text] else ())]


# Without these words the others do not mean it, however much they have in common.
NEEDED = {"fp16_without_scaler": ("fp16", "float16", "half"), "deepspeed_loss_scale": ("deepspeed", "scale")}


def _meant(name: str, question: str) -> bool:
    words = NEEDED.get(name)
    return words is None or any(word in question.lower().replace("bfloat16", "bf16") for word in words)


def scores(question: str, terms: dict[str, Any], names: Sequence[str]) -> tuple[dict[str, float], dict[str, int]]:
    """For every diagnosis that shares words with the question: its share of the possible score, and how many words it names."""
    words = dict.fromkeys(tokens(question))
    rarity = terms.get("@idf", {})
    unknown = max(rarity.values(), default=0)
    # A word that no diagnosis has counts as much as a rare one: the question speaks of something else.
    # A number that none has says nothing of that kind: sizes, counts, the steps until it happened.
    most = sum(rarity.get(word, 0 if word.isdigit() else unknown) for word in words) * 2.2 / SCALE
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
    out = weighed(found, question, diagnosis_store.terms(), diagnosis_store.ids())
    return out if found else [*_of_hangs(out, question), *out]


def _of_hangs(found: list[Candidate], question: str) -> list[Candidate]:
    """What a hang that is told in words leads to, before what the other words of the question are like."""
    from .hangs import told

    names = told(question)
    said = Shown("question", 0, " ".join(question.split())[:300])
    best = max((one.weight for one in found), default=0.0)
    # A symptom that the words name almost whole says more than the moment alone.
    clear = {one.diagnosis.id for one in found if one.weight >= CLEAR}
    out = []
    for at, name in enumerate(names):
        if name not in clear:
            weight = (min(best, CLEAR) if clear else best) + (0 if clear else 10) - at
            out.append(Candidate(diagnosis_store.get(name), LEVELS[-1], (), (said,), weight, ("~", 0), "", True))
    return out


def weighed(found: list[Candidate], question: str, terms: dict[str, Any], names: Sequence[str]) -> list[Candidate]:
    """The same with an index handed over."""
    share: dict[str, float] = {}
    shared: dict[str, int] = {}
    for part in parts(question):
        of_part, words = scores(part, terms, names)
        for name, score in of_part.items():
            if score > share.get(name, 0):
                share[name], shared[name] = score, words[name]
    best = max(share.values(), default=0)
    share = {name: score for name, score in share.items() if _meant(name, question)}
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
        if beside is None and any(one.diagnosis.family == "memory" for one in found):
            continue  # that memory ran out is a fact: words only narrow what it ran out for
        lines, weight, ranks = (beside.evidence, beside.weight, beside.ranks) if beside else ((), 0.0, ())
        weight += 10 * share[name]
        if found and beside is None:
            weight = min(weight, min(one.weight for one in out[: len(found)]) - 1)  # words do not outweigh lines
        out.append(Candidate(diagnosis, LEVELS[-1], ranks, (*lines, told), weight, ("~", 0), "", True))
    return out
