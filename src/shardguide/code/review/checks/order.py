"""Collectives over control flow: what one side of a test executes and the other does not (FSD201, 210-213 and the rules of single calls).

For every test of the rank, the sequence of collectives with the test true is compared with the sequence with it false, over
the whole of what was followed (sequences.py). Equal sequences match, wherever their parts stand: a barrier that the others
run before, and rank 0 after its work, is right. Each place gets a verdict: matched, mismatched with both sequences, or
unknown with the reason.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from itertools import product

from shardguide.guidance.hints import NamedTuple

from ..project import File
from ..reader import Reader, holders
from ..records import Condition, Path, Verdict, compatible
from ..sequences import (
    Fork,
    Op,
    Sequence,
    Turns,
    fails,
    flat,
    leaves,
    open_tests,
    settled,
    shape,
    ways_out,
    words,
)
from ..trace import Branch, Event, Item, Leave, Unknown, conditions, events, quiet, uneven_loops
from ..walk import Walker
from .agreed import agreed

Place = tuple[Branch, Condition]


class Left(NamedTuple):
    """A collective that one side of a test does not execute."""

    event: Event
    key: str
    arm: bool  # the side that executes it
    certain: bool
    mine: str  # what these ranks execute
    others: str
    out: ast.AST | None = None  # the test of a way out before it, which some ranks of the other side may take


_READ = 100_000  # parts of a trace that are read for all its tests of the rank
_TESTS = 4  # other tests that are tried both ways


def compare(walker: Walker) -> None:
    """Report collectives that only some ranks reach."""
    left: list[Left] = []
    for root in walker.roots:
        if not events(root):
            quiet(root, walker.verdicts, walker.placed)
        else:
            budget = _READ
            for key, places in conditions(root, "rank").items():
                found, read = _compare(walker, root, key, places) if budget > 0 else ([], 0)
                left += found
                budget -= read
                if not read:
                    _say(walker, places, key, "unknown", ("…", "…"), "there is more than can be compared")
            for places in conditions(root, "local").values():
                _local(walker, root, *places[0])
            _uneven(walker, root)
    if len(walker.roots) > 2:  # the methods of a class: __enter__ and __exit__ may share a pair between them
        pairs = Counter((one.event.what, one.key, one.arm) for one in left)
        kept = [one for one in left if not pairs[(one.event.what, one.key, not one.arm)]]
        for key in {one.key for one in left} - {one.key for one in kept}:
            for at, verdict in enumerate(walker.verdicts):
                if verdict.test == key and verdict.verdict == "mismatched":
                    why = "another method of the class may make up for it"
                    walker.verdicts[at] = verdict._replace(verdict="unknown", why=why)
        left = kept
    tests = _tests(walker) if left else {}
    for event, key, arm, certain, mine, others, out in left:
        if out is None:
            test = (key if arm else f"not ({key})") + _where(event, *tests[key])
        else:
            where = _line(out, walker.file_of(out), event.file)
            test = f"{where} lets ranks with {f'not ({key})' if arm else key} go on"
        walker.report_at(
            event.code, event.file, event.node, certain, what=event.what, test=test, one=mine, others=others
        )


def _compare(walker: Walker, root: list[Item], key: str, places: list[Place]) -> tuple[list[Left], int]:
    """What is left of one side, and how much was read."""
    holding: set[int] = set()
    holders(root, key, holding)
    true, false = Reader(key, True, holding), Reader(key, False, holding)
    yes, no = true.read(root), false.read(root)
    if true.cut or false.cut:
        _say(walker, places, key, "unknown", ("…", "…"), "there is more than can be compared")
        return [], true.size + false.size
    if fails(yes) or fails(no):
        _say(walker, places, key, "matched", _apart(yes, no), "")
        return [], true.size + false.size
    sure = all(condition.sure for _, condition in places)
    one, other = _apart(yes, no)
    verdict, why = "matched", ""
    left: list[Left] = []
    hidden = [one for one in (*true.unknown, *false.unknown) if _arm(one.path, key) is not None]
    differ = shape(yes) != shape(no)
    ways = _ways(yes, no) if differ else []
    differ = bool(ways)
    if len(ways) == 1:
        yes, no = ways[0]
        one, other = _apart(yes, no)
    for mine, others in ways:
        left += [one for one in _left(mine, others, key, sure, _apart(mine, others), hidden) if one not in left]
    crossed = None if left else _crossed(yes, no)
    if crossed is not None:
        verdict = "mismatched"
        here, there = crossed
        walker.report_at(
            "FSD213", here.event.file, here.event.node, sure and not hidden, what=here.text, other=there.text,
            test=key, one=one, others=other,
        )  # fmt: skip
    elif left or differ:
        verdict, why = _judged(walker, yes, no, left, places, (one, other))
    elif hidden:
        verdict, why = "unknown", f"{hidden[0].what} cannot be followed"
    _say(walker, places, key, verdict, (one, other), why)
    return left, true.size + false.size


def _ways(yes: Sequence, no: Sequence) -> list[tuple[Sequence, Sequence]]:
    """Both sides as they are, or as other tests leave them that stand on both, wherever they then differ.

    ``if distributed: all_reduce`` on one side and on the other all_reduce after ``if not distributed: return`` are the same.
    """
    here, there = _between(yes, no)
    often = Counter(open_tests(yes) + open_tests(no))
    keys = [key for key in dict.fromkeys(open_tests(here) + open_tests(there)) if often[key] > 1][:_TESTS]
    if not keys:
        return [(yes, no)]
    out: list[tuple[Sequence, Sequence]] = []
    for arms in product((True, False), repeat=len(keys)):
        known = dict(zip(keys, arms, strict=True))
        one, other = settled(yes, known), settled(no, known)
        if shape(one) != shape(other):
            out.append((one, other))
    return out


def _say(walker: Walker, places: list[Place], key: str, verdict: str, said: tuple[str, str], why: str) -> None:
    for branch, _ in places:
        line = getattr(branch.node, "lineno", 1)
        walker.verdicts.append(Verdict(branch.file.path, line, verdict, key, *said, why))


def _judged(
    walker: Walker,
    yes: Sequence,
    no: Sequence,
    left: list[Left],
    places: list[Place],
    said: tuple[str, str],
) -> tuple[str, str]:
    """The verdict on sequences that differ."""
    if left:
        if any(one.certain for one in left) or not all(condition.sure for _, condition in places):
            return "mismatched", ""
        return "unknown", "a call that cannot be followed, or another test, may make up for it"
    if _forked(yes) or _forked(no):
        return "unknown", "other tests decide on which way the collectives are met"
    branch = places[0][0]
    op = next(iter(flat(_between(yes, no)[0]) or flat(_between(yes, no)[1])), None)
    what = op.text if op is not None else "a collective"
    why = f"some ranks execute {said[0]}, others {said[1]}"
    walker.report_at("FSD210", branch.file, branch.node, False, what=what, why=why)
    return "mismatched", ""


def _left(
    yes: Sequence, no: Sequence, key: str, sure: bool, said: tuple[str, str], hidden: list[Unknown]
) -> list[Left]:
    """Collectives of one side that the other has not."""
    found: list[Left] = []
    certain, by_leaving = sure, False
    leaving: ast.AST | None = None
    mine, others = _without(yes, no, False)
    if not mine and not others:
        by_leaving = True
        leaving = _way_out(yes, no)
        mine, others = _without(yes, no, True)
        certain = False  # another test, which need not hold, decides with it
    for have, lack, arm in ((mine, others, True), (others, mine, False)):
        rest = Counter(op.meets for op in lack)
        for op in have:
            if rest[op.meets]:
                rest[op.meets] -= 1
                continue
            event = op.event
            if any(condition.kind == "guard" for condition in event.path):
                continue
            if event.code == "FSD117" and (by_leaving or _asked(event)):
                continue
            covered = any(
                _arm(one.path, key) is (not arm) and _compatible_but(one.path, event.path, key) for one in hidden
            )
            texts = said if arm else said[::-1]
            found.append(Left(event, key, arm, certain and event.sure and not covered, *texts, leaving))
            if by_leaving:
                return found  # what comes later has the same cause
    return found


def _asked(event: Event) -> bool:
    """Whether the test right before an initialisation is another one: whether there is one already, or more than one process."""
    return bool(event.path) and event.path[-1].kind != "rank"


def _without(yes: Sequence, no: Sequence, leaving: bool) -> tuple[list[Op], list[Op]]:
    """What each side executes alone; with ``leaving`` on a run that takes every way out that one side has before the other."""
    true, false = [op for op in flat(yes) if op.event.code], [op for op in flat(no) if op.event.code]
    if not leaving:
        return _minus(true, false), _minus(false, true)
    first, second = frozenset(ways_out(yes)), frozenset(ways_out(no))
    only_yes, only_no = first - second, second - first
    if only_yes:
        return [], _minus(false, flat(yes, only_yes))
    return _minus(true, flat(no, only_no)) if only_no else [], []


def _way_out(yes: Sequence, no: Sequence) -> ast.AST | None:
    """The first test of a way out that one side has and the other has not."""
    first, second = ways_out(yes), ways_out(no)
    only = {number: test for number, test in first.items() if number not in second} or {
        number: test for number, test in second.items() if number not in first
    }
    return next(iter(only.values()), None)


def _minus(have: list[Op], other: list[Op]) -> list[Op]:
    rest = Counter(id(op.event) for op in other)
    out = []
    for op in have:
        if rest[id(op.event)]:
            rest[id(op.event)] -= 1
        else:
            out.append(op)
    return out


def _crossed(yes: Sequence, no: Sequence) -> tuple[Op, Op] | None:
    """Collectives that both sides execute, in another order: of several groups, or of one."""
    if _forked(yes) or _forked(no):
        return None
    true, false = flat(yes), flat(no)
    common = Counter(op.meets for op in true) & Counter(op.meets for op in false)
    rows = []
    for ops in (true, false):
        left, row = Counter(common), []
        for op in ops:
            if left[op.meets]:
                left[op.meets] -= 1
                row.append(op)
        rows.append(row)
    for one, other in zip(*rows, strict=True):
        if one.meets != other.meets:
            return one, other
    return None


def _forked(sequence: Sequence) -> bool:
    return any(isinstance(part, Fork) or (isinstance(part, Turns) and _forked(part.body)) for part in sequence)


def _apart(yes: Sequence, no: Sequence) -> tuple[str, str]:
    """Both sequences in words, from where they differ to where they meet again."""
    one, other = _between(yes, no)
    return words(one), words(other)


def _between(yes: Sequence, no: Sequence) -> tuple[Sequence, Sequence]:
    """Both sequences from where they differ to where they meet again; inside of a loop or a test, if all else is the same."""
    start = 0
    while start < min(len(yes), len(no)) and shape(yes[start : start + 1]) == shape(no[start : start + 1]):
        start += 1
    end = 0
    together = not leaves((*yes[start:], *no[start:]))  # else what comes later belongs to it
    while together and end < min(len(yes), len(no)) - start and shape(yes[-1 - end :][:1]) == shape(no[-1 - end :][:1]):
        end += 1
    if start == len(yes) == len(no):
        return yes, no
    one, other = yes[start : len(yes) - end], no[start : len(no) - end]
    if len(one) == len(other) == 1:
        here, there = one[0], other[0]
        if isinstance(here, Turns) and isinstance(there, Turns) and here.over == there.over:
            return _between(here.body, there.body)
        if isinstance(here, Fork) and isinstance(there, Fork) and here.test is there.test:
            ways = [(here.one, there.one), (here.other, there.other)]
            differing = [way for way in ways if shape(way[0]) != shape(way[1])]
            if len(differing) == 1:
                return _between(*differing[0])
    return one, other


def _local(walker: Walker, root: list[Item], branch: Branch, condition: Condition) -> None:
    """A test of this rank's own data that decides about collectives."""
    holding: set[int] = set()
    holders(root, condition.key, holding)
    true, false = Reader(condition.key, True, holding), Reader(condition.key, False, holding)
    yes, no = true.read(root), false.read(root)
    if true.cut or false.cut or shape(yes) == shape(no) or not isinstance(branch.node, ast.If):
        return
    if any(isinstance(item, Leave) and item.kind in ("raise", "exit") for item in (*branch.body, *branch.other)):
        return  # the run ends here, whatever the others do
    mine, others = _without(yes, no, False)
    if not mine and not others:
        mine, others = _without(yes, no, True)
    found = next((op.event for op in (*others, *mine)), None)
    if found is None or any(one.kind == "guard" for one in found.path):
        return
    if agreed(branch.file, branch.node):
        return
    one, other = _apart(yes, no)
    walker.report_at(
        "FSD211", branch.file, branch.node, False,
        test=branch.file.source(branch.node.test), what=found.what, one=one, other=other,
    )  # fmt: skip


def _uneven(walker: Walker, root: list[Item]) -> None:
    """Loops that don't run equally often on all ranks."""
    for loop in uneven_loops(root):
        inside = [event for event in events(loop.body) if event.code]
        if not inside or any(one.kind == "guard" for one in inside[0].path):
            continue
        if isinstance(loop.node, ast.While) and agreed(loop.file, loop.node):
            continue
        walker.report_at(
            loop.code, loop.file, loop.node, loop.sure and inside[0].sure, what=inside[0].what, why=loop.uneven
        )


def _tests(walker: Walker) -> dict[str, tuple[Branch, dict[int, Branch]]]:
    """For each test of the rank the branch where it stands first, and the first around each collective, by its id."""
    out: dict[str, tuple[Branch, dict[int, Branch]]] = {}
    for root in walker.roots:
        for key, places in conditions(root, "rank", own=True).items():
            for branch, _ in places:
                _, around = out.setdefault(key, (branch, {}))
                for event in events([branch]):
                    around.setdefault(id(event), branch)
    return out


def _where(event: Event, first: Branch, around: dict[int, Branch]) -> str:
    """Where the test stands that decides about a collective; the first one, if the collective is in no arm of any."""
    branch = around.get(id(event), first)
    return f" ({_line(branch.node, branch.file, event.file)})"


def _line(node: ast.AST, file: File, here: File) -> str:
    """The line of something, with its file if that is another one."""
    name = "" if file is here else f"{file.path.replace(os.sep, '/').rpartition('/')[2]}, "
    return f"{name}line {getattr(node, 'lineno', 1)}"


def _arm(path: Path, key: str) -> bool | None:
    for condition in path:
        if condition.key == key:
            return condition.arm
    return None


def _compatible_but(one: Path, other: Path, key: str) -> bool:
    """Whether one run can take both ways if ranks differ in ``key`` alone."""
    return compatible(
        tuple(condition for condition in one if condition.key != key),
        tuple(condition for condition in other if condition.key != key),
    )


ENDS = [compare]
