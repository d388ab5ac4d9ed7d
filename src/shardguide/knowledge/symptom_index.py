"""Words by which people describe what happens, and the diagnoses that they speak for: the index for ``--question``.

Built by ``scripts/build_diagnoses.py`` into ``data/diagnoses.json`` (``@terms``), so that a question parses one line and no
diagnosis. Weights are BM25's (Robertson, Zaragoza: The Probabilistic Relevance Framework, 2009), with words of symptoms
counted more often than those of titles, and these more often than those of causes.
"""

from __future__ import annotations

import math
import re

from shardguide.guidance.hints import Any

FIELDS = (("symptoms", 4), ("title", 2), ("cause", 1), ("tell", 0.5), ("signs", 0.5))
NAMED = ("symptoms", "title")
K, B = 1.2, 0.6
SCALE = 100
_WORD = re.compile(r"[a-z]+(?:_[a-z]+)*|\d+(?:\.\d+)?")
_NO_NEWS = (
    "a about after all also an and another any are as at be because been before but by can cannot do does each either else even "
    "for from get gets give given go goes had has have here how if in into is it its itself just least less like made make many "
    "may me more most much must my no none not nothing of off on once one only onto or other others our out over own per same "
    "see seen so some such take than that the their them then there these they this those to too two under up use used uses "
    "using very was way we were what when where which while who whose why will with without would you your i am s t don doesn "
    "line says said say happen happens happened job run runs running ran training train trains trained problem issue error "
    "errors fail fails failed failure failing please help know wrong something anything"
)
_COMMON = frozenset(_NO_NEWS.split())
# Different words for the same thing, after the ends were cut.
_SAME = {
    "oom": "memory", "ooms": "memory", "freeze": "hang", "frozen": "hang", "froze": "hang", "stuck": "hang", "stall": "hang",
    "deadlock": "hang", "hung": "hang", "block": "hang", "cards": "gpu", "ckpt": "checkpoint", "tokenis": "tokeniz",
    "preprocess": "preproces", "multinode": "node", "machine": "node", "host": "node", "dataset": "data", "loader": "dataloader",
    "save": "sav", "nans": "nan", "weight": "parameter", "param": "parameter", "resum": "resume", "infiniband": "ib",
    "dies": "die", "died": "die", "dead": "die",
}  # fmt: skip


def tokens(text: str) -> list[str]:
    """The words of a text that can tell one diagnosis from another, without their endings."""
    out = []
    for word in _WORD.findall(text.lower()):
        for part in {word, *word.split("_")} if "_" in word else (word,):
            if len(part) < 2 or part in _COMMON:
                continue
            part = _stem(part)
            out.append(_SAME.get(part, part))
    return out


def _stem(word: str) -> str:
    if "_" in word or len(word) < 4 or word.isdigit():
        return word
    for end in ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "er", "ers", "e", "y"):
        if word.endswith(end) and len(word) - len(end) >= 3 and not word.endswith("ss"):
            return word[: -len(end)]
    return word


def build(entries: dict[str, Any]) -> dict[str, Any]:
    """Postings of every word: ``{word: [document, weight, named, …]}`` over the sorted ids, and each word's rarity under ``@idf``.

    ``named`` is 1 where the word stands in a title or symptom: causes and signs only add to what these say.
    """
    names = sorted(entries)
    counts: list[dict[str, float]] = []
    own: list[set[str]] = []
    for name in names:
        found: dict[str, float] = {}
        entry = entries[name]
        if entry["kind"] != "cascade":
            for field, weight in FIELDS:
                for word in tokens(_text(entry.get(field, ""))):
                    found[word] = found.get(word, 0) + weight
        counts.append(found)
        own.append({word for field in NAMED for word in tokens(_text(entries[name].get(field, "")))})
    lengths = [sum(found.values()) for found in counts]
    average = sum(lengths) / max(1, sum(1 for one in lengths if one)) or 1
    where: dict[str, list[int]] = {}
    for at, found in enumerate(counts):
        for word in found:
            where.setdefault(word, []).append(at)
    total = sum(1 for one in lengths if one)
    out: dict[str, Any] = {}
    rarity: dict[str, int] = {}
    for word, places in sorted(where.items()):
        idf = math.log(1 + (total - len(places) + 0.5) / (len(places) + 0.5))
        rarity[word] = round(SCALE * idf)
        postings: list[int] = []
        for at in places:
            count = counts[at][word]
            strength = count * (K + 1) / (count + K * (1 - B + B * lengths[at] / average))
            postings += [at, round(SCALE * idf * strength), int(word in own[at])]
        out[word] = postings
    return {"@idf": rarity, **out}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return " ".join(one["text"] if isinstance(one, dict) else one for one in value)
