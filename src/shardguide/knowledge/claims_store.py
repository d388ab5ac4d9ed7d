"""The claims as shipped: ``data/claims.json``, generated from ``claims/*.toml`` by ``scripts/build_claims.py``.

A claim is one statement with its sources. A source is a place in PyTorch's code, with words (anchors) by which the
statement is found again there, or a page with the digest of the sentence that it rests on. The releases in which the words
stand were looked up in the releases' own wheels; nobody wrote them by hand.
"""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.knowledge.lines import Lines

_lines = Lines("claims.json")
_tables: dict[str, dict[str, Any]] = {}
_known: dict[str, Statement] = {}  # what was looked up, since a plan asks for each claim several times


class Words(NamedTuple):
    """A source in PyTorch's code."""

    title: str
    url: str
    places: tuple[tuple[str, str, str], ...]  # object, file and definition; where it is now first, then where it was
    anchors: tuple[str, ...]  # any one of these must stand inside the definition
    releases: str  # where one does, e.g. "2.6-2.15"


class Page(NamedTuple):
    """A source that is a page."""

    title: str
    url: str
    section: str
    version: str  # of the page: a release, a commit or the date it was read
    digest: str  # SHA-256 of the sentence's words, by which it is known again: see installed/pages.py
    words: int
    key: str  # its longest word
    at: int  # how many words stand before that one


class Statement(NamedTuple):
    """One claim, not yet looked up anywhere."""

    id: str
    text: str
    subjects: tuple[int | str, ...]  # numbers of the subjects that must be answered well, and tags
    sources: tuple[Words | Page, ...]
    releases: str  # in which every source in code is found; "" for a claim that rests on pages alone
    limits: str  # releases outside of which the statement is false although the words may stand there; "" for none
    witness: str  # the test that runs the statement on a real PyTorch; "" for none


def ids() -> list[str]:
    """The ids of all claims, sorted."""
    return _lines.ids()


def digest() -> str:
    """What identifies these claims."""
    return _lines.digest


def get(claim: str) -> Statement:
    """One claim.

    Raises:
        KeyError: there is no claim of that id.
    """
    if claim in _known:
        return _known[claim]
    entry = _lines.entry(claim)
    sources: list[Words | Page] = []
    for source in entry["sources"]:
        if "place" in source:
            place = _table("@places")[source["place"]]
            where = tuple((item[0], item[1], item[2]) for item in place["at"])
            sources.append(Words(place["title"], place["url"], where, tuple(source["anchors"]), source["releases"]))
        else:
            page = _table("@pages")[source["page"]]
            known = (source["digest"], source["words"], source["key"], source["at"])
            sources.append(Page(page["title"], page["url"], source["section"], page["version"], *known))
    _known[claim] = Statement(
        claim,
        entry["text"],
        tuple(entry["subjects"]),
        tuple(sources),
        entry["releases"],
        entry.get("limits", ""),
        entry.get("witness", ""),
    )
    return _known[claim]


def _table(name: str) -> dict[str, Any]:
    if name not in _tables:
        _tables[name] = _lines.get(name)
    return _tables[name]
