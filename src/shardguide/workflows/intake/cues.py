"""Cues in words: which workflow they speak for, and what they state of its fields."""

from __future__ import annotations

import json
import os
import re
from functools import cache

from shardguide.guidance.hints import Any, NamedTuple


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
def _data() -> tuple[tuple[_Cue, ...], dict[str, tuple[_State, ...]]]:
    here = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - as in the rest of the product
    with open(os.path.join(here, "knowledge", "data", "intake.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        data = json.load(file)
    found = tuple(
        _Cue(task, weight, re.compile(pattern, 0 if case else re.IGNORECASE))
        for task, weight, pattern, case in data["cues"]
    )
    states: dict[str, tuple[_State, ...]] = {}
    for task, field, value, pattern, many in data["states"]:
        one = _State(field, value, re.compile(pattern, re.IGNORECASE), many)
        states[task] = (*states.get(task, ()), one)
    return found, states


def scores(words: str) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:
    """For each workflow what its cues add up to, and the words that were met."""
    total: dict[str, float] = {}
    met: dict[str, tuple[str, ...]] = {}
    text = " ".join(words[:4000].split())
    for cue in _data()[0]:
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
    for one in _data()[1].get(task, ()):
        if one.pattern.search(text) is None:
            continue
        if one.field == "now":
            out.setdefault("now", []).append(one.value)
        elif one.field not in out:
            out[one.field] = one.value
        elif one.many:
            out[one.field] = f"{out[one.field]},{one.value}"
        else:
            doubtful.add(one.field)
    return {name: value for name, value in out.items() if name not in doubtful}
