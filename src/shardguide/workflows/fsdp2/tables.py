"""FSDP1 and FSDP2 side by side for a release, and the check that what is shown is in it."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Check
from shardguide.knowledge import api, fsdp2_mapping
from shardguide.knowledge.fsdp2_mapping import Feature, Row


class Compared(NamedTuple):
    """One feature, in FSDP1 and in FSDP2."""

    id: str
    feature: str
    fsdp1: str  # "": FSDP1 has no such thing
    fsdp2: str
    fsdp1_releases: str  # worked out from the API of every release
    fsdp2_releases: str
    in_release: bool  # whether FSDP2 has it in the release of the answer
    claims: tuple[str, ...]


class Mapped(NamedTuple):
    """One name or habit of FSDP1, and what takes its place."""

    id: str
    kind: str
    fsdp1: str
    fsdp2: str
    counterpart: str
    note: str
    fsdp1_releases: str
    fsdp2_releases: str
    in_release: bool  # whether the FSDP2 form can be written in the release of the answer
    claims: tuple[str, ...]


def comparison(features: list[Feature], release: str) -> list[Compared]:
    """Every feature with the releases that have it."""
    return [
        Compared(
            one.id, one.title, one.fsdp1, one.fsdp2, one.releases1, one.releases2,
            api.holds(release, one.releases2), one.claims,
        )
        for one in features
    ]  # fmt: skip


def mapping(rows: list[Row], release: str) -> list[Mapped]:
    """Every row whose FSDP1 side the release has, in the release's spelling."""
    return [
        Mapped(
            one.id, one.kind, one.fsdp1, fsdp2_mapping.form(one, release), one.counterpart, one.note, one.releases1, one.releases2,
            api.holds(release, one.releases2), one.claims,
        )
        for one in rows
        if api.holds(release, one.releases1)
    ]  # fmt: skip


def first(ranges: str) -> str:
    """The first release of ranges such as ``2.6-2.15``."""
    return ranges.replace(",", "-").partition("-")[0].strip()


def missing(features: list[Feature], rows: list[Row], release: str) -> tuple[int, list[str]]:
    """How many API names were looked up in the index of the release, and those that are not there although they are shown as there."""
    wanted: dict[tuple[str, bool], None] = {}
    sides = [(one.names1, one.releases1, False) for one in features] + [
        (one.names1, one.releases1, False) for one in rows
    ]
    sides += [(one.names2, one.releases2, True) for one in features] + [
        (one.names2, one.releases2, True) for one in rows
    ]
    for names, ranges, second in sides:
        if api.holds(release, ranges):
            wanted.update(dict.fromkeys((name, second) for name in names))
    return len(wanted), [name for name, second in wanted if not fsdp2_mapping.has(name, release, second)]


def documentation(looked_up: int, absent: list[str], release: str, sources: Check | None) -> Check:
    """Check ``documentation``: the API of the release has every name that is shown, and its documentation every statement."""
    if absent:
        some = ", ".join(absent[:6])
        return Check("documentation", "failed", f"Shown, but not in PyTorch {release}: {some}.")
    evidence = f"PyTorch {release} has all {looked_up} API names that are shown for it"
    if sources is None:
        return Check("documentation", "unknown", f"{evidence}; no statement was looked up.")
    return Check("documentation", sources.result, f"{evidence}; {sources.evidence}")
