"""The patterns as shipped: ``data/patterns.json``, generated from ``patterns/*.py`` by ``scripts/build_patterns.py``.

A pattern is a real file of code for one task: the tests run it, a user pastes it. In which releases it can be shown was found
by comparing every name, method and keyword in it with the API of every release.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Snippet, Verified
from shardguide.knowledge import releases
from shardguide.knowledge.lines import Lines

_lines = Lines("patterns.json")


class Pattern(NamedTuple):
    """One pattern."""

    id: str
    title: str
    topics: tuple[str, ...]
    form: str  # "fsdp2", "fsdp1", "ddp" or "c10d"
    architecture: str  # "", or the kind of model that it is for: "transformer", "moe", "vision", "multi-tower", "tied"
    follows: tuple[str, ...]  # official objects and pages whose way it follows
    departs: str  # where it departs from them, and why; "" where it does not
    releases: str  # that have everything it uses, e.g. "2.6-2.15"
    executed: str  # how the tests run it, e.g. "2.13.0, 2 processes, Gloo, CPU"; "" when they cannot
    not_run: str  # why they cannot; "" when they do
    run: tuple[tuple[str, str], ...]  # what the tests replace to run it without a GPU
    before: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # (release, replacements for the releases below it)
    code: str


def ids() -> list[str]:
    """The ids of all patterns, sorted."""
    return _lines.ids()


def digest() -> str:
    """What identifies these patterns."""
    return _lines.digest


def get(pattern: str) -> Pattern:
    """One pattern.

    Raises:
        KeyError: there is no pattern of that id.
    """
    entry = _lines.entry(pattern)
    return Pattern(
        pattern,
        entry["title"],
        tuple(entry["topics"]),
        entry["form"],
        entry["architecture"],
        tuple(entry["follows"]),
        entry["departs"],
        entry["releases"],
        entry["executed"],
        entry["not_run"],
        tuple(entry["run"].items()),
        tuple((release, tuple(changes.items())) for release, changes in entry["before"].items()),
        entry["code"],
    )


def of_topic(topic: str) -> list[str]:
    """The ids of the patterns that belong to a topic."""
    return list((_lines.get("@topics") or {}).get(topic, ()))


def of_architecture(architecture: str) -> list[str]:
    """The ids of the patterns for a kind of model."""
    return list((_lines.get("@architectures") or {}).get(architecture, ()))


def code_for(pattern: Pattern, release: str) -> str:
    """The code in the spelling of a release."""
    code = pattern.code
    for bound, changes in pattern.before:
        if releases.within(release, f"{releases.OLDEST}-{bound}") and releases.minor(release) != bound:
            for new, old in changes:
                code = code.replace(new, old)
    return code


def offered(pattern: Pattern, release: str) -> bool:
    """Whether a release has everything that the pattern uses."""
    return releases.within(release, pattern.releases)


def snippet(pattern: str, release: str) -> Snippet | None:
    """The pattern for a release as part of an answer, or None where the release lacks something that it uses.

    Raises:
        KeyError: there is no pattern of that id.
    """
    found = get(pattern)
    if not offered(found, release):
        return None
    code = code_for(found, release)
    # What ran is the spelling of today; that of an older release differs by the replacements of the header.
    older = ", in the spelling of later releases" if found.executed and code != found.code else ""
    return Snippet(pattern, found.title, "python", code, Verified(True, True, found.executed + older))
