"""Collectives over control flow: what one side of a rank test executes and the other does not (FSD116, 117, 201, 206, 208, 701, 702, 711).

For every test of the rank, the sequence of collectives with the test true is compared with the sequence with it false, over
the whole of what was followed. Equal sequences match, wherever their parts stand: a barrier that the others run before, and
rank 0 after its work, is right.
"""

from __future__ import annotations

from ..records import Path, compatible
from ..state import Event
from ..walk import Walker


def compare(walker: Walker) -> None:
    """Report collectives that only some ranks reach."""
    keys: dict[str, bool] = {}
    for event in walker.events:
        for condition in event.path:
            if condition.kind == "rank":
                keys[condition.key] = keys.get(condition.key, True) and condition.sure
    for key, sure in keys.items():
        _compare(walker, key, sure)


def _compare(walker: Walker, key: str, sure: bool) -> None:
    true, false = _sequence(walker.events, key, True), _sequence(walker.events, key, False)
    if [event.what for event in true] == [event.what for event in false]:
        return
    only_true = [event for event in true if _arm(event.path, key) is True]
    only_false = [event for event in false if _arm(event.path, key) is False]
    for mine, others, arm in ((only_true, only_false, True), (only_false, only_true, False)):
        left = [event.what for event in others]
        for event in mine:
            if event.what in left:
                left.remove(event.what)
                continue
            if any(condition.kind == "guard" for condition in event.path):
                continue
            hidden = any(
                _arm(path, key) is (not arm) and compatible_but(path, event.path, key) for path in walker.unknown
            )
            elsewhere = ", ".join(dict.fromkeys(other.what for other in others)) or "none"
            walker.report_at(
                event.code,
                event.file,
                event.node,
                sure and event.sure and not hidden,
                what=event.what,
                test=key if arm else f"not ({key})",
                others=elsewhere,
            )


def _sequence(events: list[Event], key: str, arm: bool) -> list[Event]:
    return [event for event in events if _arm(event.path, key) in (None, arm)]


def _arm(path: Path, key: str) -> bool | None:
    for condition in path:
        if condition.key == key:
            return condition.arm
    return None


def compatible_but(one: Path, other: Path, key: str) -> bool:
    """Whether one run can take both ways if ranks differ in ``key`` alone."""
    return compatible(
        tuple(condition for condition in one if condition.key != key),
        tuple(condition for condition in other if condition.key != key),
    )


ENDS = [compare]
