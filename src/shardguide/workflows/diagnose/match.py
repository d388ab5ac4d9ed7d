"""From lines in which known words stand to the diagnoses that they speak for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import diagnosis_store
from shardguide.knowledge.diagnosis_store import Diagnosis
from shardguide.readers.logs.records import Event, Evidence

LEVELS = ("certain", "likely", "possible")


class Shown(NamedTuple):
    """A line of the user's that is evidence."""

    file: str
    line: int
    text: str


class Candidate(NamedTuple):
    """A diagnosis that the evidence speaks for. ``place`` is the line of the user's code, where it is known."""

    diagnosis: Diagnosis
    confidence: str  # one of LEVELS
    ranks: tuple[int, ...]
    evidence: tuple[Shown, ...]
    weight: float  # how much speaks for it beyond its confidence: more is better
    order: tuple[str, int] = ("", 0)  # file and line of its first evidence
    place: str = ""
    named: bool = False  # the ranks are those that the line names, not those that printed it


def candidates(logs: Sequence[Evidence]) -> list[Candidate]:
    """Every diagnosis one of whose signs stands in the logs, with what it needs beside it and without what excludes it."""
    by_sign: dict[int, list[Event]] = {}
    for log in logs:
        for event in log.events:
            by_sign.setdefault(event.sign, []).append(event)
    out = []
    for name in diagnosis_store.of_words(by_sign):
        diagnosis = diagnosis_store.get(name)
        if any(at not in by_sign for at in diagnosis.all):
            continue
        if any(at in by_sign for at in diagnosis.unless):
            continue
        events = []
        named: set[int] = set()
        for sign in diagnosis.signs:
            for event in by_sign.get(sign.at, ()):
                found = re.search(sign.where, event.text) if sign.where else None
                if found is None and sign.where:
                    continue
                events.append(event)
                if found is not None and "ranks" in found.groupdict():
                    named.update(int(one) for one in re.findall(r"\d{1,7}", found["ranks"] or "")[:64])
        if events:
            beside = [by_sign[at][0] for at in diagnosis.all]
            out.append(_candidate(diagnosis, events, beside, named))
    return out


def _candidate(diagnosis: Diagnosis, events: list[Event], beside: list[Event], named: set[int]) -> Candidate:
    events.sort(key=lambda one: (one.file, one.line))
    ranks = sorted(named or {event.rank for event in events if event.rank is not None})
    shown = list(dict.fromkeys(Shown(one.file, one.line, one.text) for one in [*events[:4], *beside]))
    # More conditions that hold make it the more special case of what else fits the same words.
    longest = max(len(sign.text) for sign in diagnosis.signs)
    weight = len(diagnosis.all) * 2 + len(diagnosis.unless) + longest / 1000
    at = (events[0].file, events[0].line)
    return Candidate(diagnosis, diagnosis.confidence, tuple(ranks), tuple(shown), weight, at, "", bool(named))
