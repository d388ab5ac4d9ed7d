"""The rules of ``review`` as shipped: ``data/rules.json``, built from ``rules/*.toml`` by ``scripts/build_rules.py``."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import releases
from shardguide.knowledge.lines import Lines

_lines = Lines("rules.json")


class Rule(NamedTuple):
    """One mistake that the review knows."""

    code: str  # FSD and three digits; the first is the area
    title: str
    message: str  # with {words} that the check fills in
    why: str
    fix: str
    certain: bool  # whether it can be certain; otherwise it is always a suspicion
    releases: str  # to which it applies, "" for all
    claims: tuple[str, ...]  # ids of the statements that it rests on
    wrong: str  # an example; lines that are found end in "# " and the code
    right: str  # the same without the mistake
    torch: str  # the release for which the examples are read, "" for any
    file: str  # what the examples are saved as
    beside: dict[str, str]  # other files of the examples
    see: tuple[str, ...]  # pages besides PyTorch's that bear it out
    not_run: str = ""  # why no test makes the mistake for real; "" where one does


def codes() -> list[str]:
    """The codes of all rules, sorted."""
    return _lines.ids()


def get(code: str) -> Rule:
    """One rule.

    Raises:
        KeyError: there is no rule of that code.
    """
    entry = _lines.entry(code)
    words = [str(entry[name]) for name in ("title", "message", "why", "fix")]
    return Rule(
        code,
        words[0],
        words[1],
        words[2],
        words[3],
        bool(entry["certain"]),
        str(entry["releases"]),
        tuple(entry["claims"]),
        str(entry["wrong"]),
        str(entry["right"]),
        str(entry["torch"]),
        str(entry["file"]),
        dict(entry["beside"]),
        tuple(entry["see"]),
        str(entry.get("not_run", "")),
    )


def applying(release: str) -> frozenset[str]:
    """The codes of the rules that apply to a release; all where it is not known."""
    limited: dict[str, str] = _lines.get("@releases") if release else {}
    return frozenset(code for code in codes() if code not in limited or releases.within(release, limited[code]))


def digest() -> str:
    """What identifies these rules."""
    return _lines.digest
