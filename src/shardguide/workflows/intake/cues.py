"""Cues in words: which workflow they speak for, and what they state of its fields."""

from __future__ import annotations

import re
from functools import cache

from shardguide.guidance.hints import Any, NamedTuple

from .data import data


class _Cue(NamedTuple):
    task: str
    weight: float
    pattern: re.Pattern[str]


class _State(NamedTuple):
    field: str
    value: str
    pattern: re.Pattern[str]
    many: bool


@cache
def _cues() -> tuple[_Cue, ...]:
    return tuple(
        _Cue(task, weight, re.compile(pattern, 0 if case else re.IGNORECASE))
        for task, weight, pattern, case in data()["cues"]
    )


@cache
def _states(task: str) -> tuple[_State, ...]:
    return tuple(
        _State(field, value, re.compile(pattern, re.IGNORECASE), many)
        for one, field, value, pattern, many in data()["states"]
        if one == task
    )


def scores(words: str) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:
    """For each workflow what its cues add up to, and the words that were met."""
    total: dict[str, float] = {}
    met: dict[str, tuple[str, ...]] = {}
    text = " ".join(words[:4000].split())
    for cue in _cues():
        found = cue.pattern.search(text)
        if found is not None:
            total[cue.task] = total.get(cue.task, 0.0) + cue.weight
            met[cue.task] = tuple(dict.fromkeys((*met.get(cue.task, ()), found[0].strip()[:60])))
    return total, met


def states(task: str, words: str) -> dict[str, Any]:
    """What the words state of a workflow's fields; a field that two different values are stated of is left open."""
    out: dict[str, Any] = {}
    text = " ".join(words[:4000].split())
    doubtful: set[str] = set()
    for one in _states(task):
        found = _said(one.pattern, text)
        if found is None:
            continue
        value = found.expand(one.value) if "\\g<" in one.value else one.value
        if one.field == "now":
            out.setdefault("now", []).append(value)
        elif one.field not in out:
            out[one.field] = value
        elif one.many:
            out[one.field] = f"{out[one.field]},{value}"
        elif out[one.field] != value:
            doubtful.add(one.field)
    return {name: value for name, value in out.items() if name not in doubtful}


# Before what is denied, and behind it.
_DENIED = re.compile(
    r"(?:\b(?:no|(?<!why )not|without|w/o|lacks?|lacking|neither|nor|never|instead of|rather than|avoid(?:ing)?)"
    r"|n['’]?t (?:have|use|using|got|want)|\b(?:sans|ohne|kein(?:e[nmr]?)?|sin|senza|sem))"
    r"(?: (?:any|an?|the|using|use|used|have|having|got|on|with|real|plain))*$",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r" (?:(?:is|are|was) ?(?:n['’]?t|not) (?:there|available|present|installed|enabled|used|an option|possible)|"
    r"(?:is |are )?(?:unavailable|missing|disabled))\b",
    re.IGNORECASE,
)


def _said(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first place that states it, and does not deny it: "no NVLink", "not using AdamW"."""
    for found in pattern.finditer(text):
        at = found.start(found.lastindex) if pattern.pattern.startswith("^") and found.lastindex else found.start()
        if not _denies(text, at, found.end()):
            return found
    return None


def _denies(text: str, start: int, end: int) -> bool:
    return bool(_DENIED.search(text[max(0, start - 40) : start].rstrip(" ")) or _MISSING.match(text, end))


def denied(word: str, text: str) -> bool:
    """Whether a word stands in a text, and everywhere as what is not there."""
    text = " ".join(text[:4000].split())
    places = list(re.finditer(rf"\b{re.escape(word)}s?\b", text, re.IGNORECASE))
    return bool(places) and all(_denies(text, one.start(), one.end()) for one in places)


def notes(task: str, words: str) -> tuple[str, ...]:
    """What is to be said to these words whatever the answer of the workflow is."""
    text = " ".join(words[:4000].split())
    return tuple(
        said
        for tasks, pattern, said in data()["notes"]
        if task in tasks and re.search(pattern, text, re.IGNORECASE) is not None
    )
