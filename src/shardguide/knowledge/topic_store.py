"""The topics as shipped: ``data/topics.json``, generated from ``topics/*.toml`` by ``scripts/build_topics.py``.

A topic is a page that puts claims and patterns in order. All that it says about PyTorch is claims, so that each sentence has its
source and is looked up before it is shown.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge.lines import Lines

_lines = Lines("topics.json")


class Section(NamedTuple):
    """A part of a page."""

    title: str
    claims: tuple[str, ...]


class Topic(NamedTuple):
    """One page."""

    id: str
    title: str
    group: str  # the heading under which it is listed
    subjects: tuple[int, ...]  # numbers of the subjects that must be answered well
    answer: tuple[str, ...]  # the claims that answer first
    sections: tuple[Section, ...]
    see: tuple[str, ...]  # other topics
    api: tuple[str, ...]  # names of the API that it is about
    workflow: str  # the command that works this out for a case, or ""


def ids() -> list[str]:
    """The ids of all topics, by group and title."""
    return _lines.ids()


def titles() -> dict[str, tuple[str, str]]:
    """(group, title) of every topic, in the order in which they are listed."""
    return {name: (row[0], row[1]) for name, row in (_lines.get("@titles") or {}).items()}


def get(topic: str) -> Topic:
    """One topic.

    Raises:
        KeyError: there is no topic of that id.
    """
    entry = _lines.entry(topic)
    return Topic(
        topic,
        entry["title"],
        entry["group"],
        tuple(entry["subjects"]),
        tuple(entry["answer"]),
        tuple(Section(title, tuple(claims)) for title, claims in entry["sections"]),
        tuple(entry["see"]),
        tuple(entry["api"]),
        entry["workflow"],
    )


def of_claim(claim: str) -> list[str]:
    """The topics on whose page a claim stands."""
    return list((_lines.get("@claims") or {}).get(claim, ()))


def digest() -> str:
    """What identifies these pages."""
    return _lines.digest
