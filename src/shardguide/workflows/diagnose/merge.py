"""One diagnosis found in several ways: once, with the ranks and lines of all of them."""

from __future__ import annotations

from collections.abc import Iterable

from .match import LEVELS, Candidate

EVIDENCE = 8


def once(found: Iterable[Candidate]) -> list[Candidate]:
    """Candidates of the same diagnosis as one: what is surest of it leads, the others add their ranks and lines."""
    out: dict[str, list[Candidate]] = {}
    for one in found:
        out.setdefault(one.diagnosis.id, []).append(one)
    return [one[0] if len(one) == 1 else _joined(one) for one in out.values()]


def _joined(found: list[Candidate]) -> Candidate:
    found.sort(key=lambda one: (LEVELS.index(one.confidence), -one.weight))
    first = found[0]
    return first._replace(
        ranks=tuple(sorted({rank for one in found for rank in one.ranks})),
        evidence=tuple(dict.fromkeys(line for one in found for line in one.evidence))[:EVIDENCE],
        place=next((one.place for one in found if one.place), ""),
    )
