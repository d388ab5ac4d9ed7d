"""FSDP1 beside FSDP2: every name of FSDP1 with its FSDP2 form, and the two feature by feature.

``mapping.toml`` and ``comparison.toml`` say it in words; in which releases each side exists is worked out from the API of every
release by ``scripts/build_mapping.py``, which writes ``data/fsdp2_mapping.json``.
"""

from __future__ import annotations

import json

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge import api, releases
from shardguide.knowledge.lines import Lines

_lines = Lines("fsdp2_mapping.json")
_known: dict[str, Any] = {}
_accepted: dict[
    tuple[str, str], frozenset[str]
] = {}  # parameters of what was looked up: FSDP1's constructor, again and again
FSDP1 = "torch.distributed.fsdp"

# Names whose releases an answer gives, whatever it is about.
NAMED = (
    "torch.distributed.fsdp.fully_shard",
    "torch.distributed._composable.fsdp.fully_shard",
    "torch.distributed._composable.fully_shard",
    "torch.distributed.fsdp.FullyShardedDataParallel",
)
COUNTERPARTS = ("same", "other", "unneeded", "none")


class Row(NamedTuple):
    """One name or habit of FSDP1."""

    id: str
    kind: str  # "argument", "value", "method", "context", "class", "policy", "state dict" or "habit"
    fsdp1: str
    fsdp2: str  # in words, or code
    counterpart: str  # "same" (under another name), "other" (done in another way), "unneeded" or "none"
    note: str
    releases1: str  # that have the FSDP1 form
    releases2: str  # that have what the FSDP2 form uses
    names1: tuple[str, ...]
    names2: tuple[str, ...]
    claims: tuple[str, ...]
    before: tuple[tuple[str, str], ...]  # (release, FSDP2 form for the releases below it)


class Feature(NamedTuple):
    """One line of the comparison; a side that lacks the feature has no words and no releases."""

    id: str
    title: str
    fsdp1: str
    fsdp2: str
    releases1: str
    releases2: str
    names1: tuple[str, ...]
    names2: tuple[str, ...]
    claims: tuple[str, ...]


def rows() -> list[Row]:
    """The mapping, in the order of the file."""
    return [
        Row(
            key, one["kind"], one["fsdp1"], one["fsdp2"], one["counterpart"], one["note"], one["releases1"], one["releases2"],
            tuple(one["names1"]), tuple(one["names2"]), tuple(one["claims"]), tuple(one["before"].items()),
        )
        for key, one in _entries("row.")
    ]  # fmt: skip


def features() -> list[Feature]:
    """The comparison, in the order of the file."""
    return [
        Feature(
            key, one["title"], one["fsdp1"], one["fsdp2"], one["releases1"], one["releases2"],
            tuple(one["names1"]), tuple(one["names2"]), tuple(one["claims"]),
        )
        for key, one in _entries("feature.")
    ]  # fmt: skip


def since(name: str) -> str:
    """The releases that have one of NAMED, as ``api.since`` found them when the table was built."""
    return str(_whole()["@since"][name])


def _entries(prefix: str) -> list[tuple[str, dict[str, Any]]]:
    return [(key[len(prefix) :], entry) for key, entry in _whole().items() if key.startswith(prefix)]


def _whole() -> dict[str, Any]:
    """The file at once, since an answer needs most of it."""
    if not _known:
        _known.update(json.loads(_lines.text))
    return _known


def form(row: Row, release: str) -> str:
    """The FSDP2 form in the spelling of a release."""
    for bound, other in row.before:
        if api.holds(release, f"{releases.OLDEST}-{bound}") and releases.minor(release) != bound:
            return other
    return row.fsdp2


def has(name: str, release: str, fsdp2: bool) -> bool:
    """Whether a release has a name of ``names1`` (FSDP1) or ``names2``: ``Class.member``, ``function(parameter)``, ``this|that``.

    Without a path a name is of ``torch.distributed.fsdp``, for FSDP2 of the module that has ``fully_shard`` in the release.
    """
    home = releases.fsdp2_path(release) if fsdp2 else FSDP1
    return any(_has(one, release, home) for one in name.split("|"))


def _has(name: str, release: str, home: str) -> bool:
    dotted, _, parameter = name.rstrip(")").partition("(")
    if not dotted.startswith("torch."):
        if not home:
            return False
        if dotted.startswith("FSDPModule") and not api.exists(f"{home}.FSDPModule", release):
            dotted = dotted.replace("FSDPModule", "FSDP", 1)  # its name in 2.3
        dotted = f"{home}.{dotted}"
    if not parameter:
        return api.exists(dotted, release)
    key = (dotted, release)
    if key not in _accepted:
        _accepted[key] = frozenset(found for found, _ in api.signature(dotted, release) or ())
    return parameter in _accepted[key]
