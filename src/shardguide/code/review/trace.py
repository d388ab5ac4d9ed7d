"""What a program executes, as a tree: collectives in order, branches with both arms, loops, calls, and ways out.

The walker writes it while it follows the program; ``sequences.py`` reads off it what each side of a rank test executes.
"""

from __future__ import annotations

import ast

from shardguide.guidance.hints import NamedTuple

from .project import File
from .records import Condition, Path, Verdict


class Event(NamedTuple):
    """A collective, in the order of the program."""

    code: str  # the rule that speaks of it when ranks don't all reach it; "" for one that only some are to reach
    what: str
    node: ast.AST
    file: File
    path: Path
    sure: bool
    group: str = ""  # its process group as written; "" for the default group
    mode: str = ""  # "async"


class Branch:
    """Two ways on: the conditions and the contents of both."""

    __slots__ = ("body", "fails", "file", "holds", "node", "other")

    def __init__(self, node: ast.AST, file: File, holds: Path, fails: Path) -> None:
        self.node = node
        self.file = file
        self.holds = holds
        self.fails = fails
        self.body: list[Item] = []
        self.other: list[Item] = []


class Loop:
    """A body that is executed a number of times."""

    __slots__ = ("body", "code", "file", "node", "sure", "times", "uneven")

    def __init__(
        self, node: ast.AST, file: File, times: int, uneven: str = "", code: str = "", sure: bool = False
    ) -> None:
        self.node = node
        self.file = file
        self.times = times  # -1: not known
        self.uneven = uneven  # why it is not the same on all ranks; "" if nothing says so
        self.code = code  # the rule that says so
        self.sure = sure
        self.body: list[Item] = []


class Scope:
    """The body of a function that is called, or a try statement with a finally."""

    __slots__ = ("body", "final", "name", "node")

    def __init__(self, name: str, node: ast.AST | None) -> None:
        self.name = name
        self.node = node
        self.body: list[Item] = []
        self.final: list[Item] | None = None  # what is executed on whatever way out


class Leave(NamedTuple):
    """A way out: return, raise, exit, break or continue."""

    kind: str
    node: ast.AST


class Unknown(NamedTuple):
    """A call that cannot be followed."""

    what: str
    node: ast.AST
    path: Path


Item = Event | Branch | Loop | Scope | Leave | Unknown


def size(items: list[Item]) -> int:
    """How many parts a piece of a trace has."""
    total = 0
    waiting = [items]
    while waiting:
        for item in waiting.pop():
            total += 1
            if isinstance(item, Branch):
                waiting += [item.body, item.other]
            elif isinstance(item, (Loop, Scope)):
                waiting.append(item.body)
                if isinstance(item, Scope) and item.final:
                    waiting.append(item.final)
    return total


def replayed(items: list[Item], cut: int, path: Path) -> list[Item]:
    """A piece of a trace once more, under other conditions: ``cut`` of its old ones are replaced by ``path``."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, (Event, Unknown)):
            out.append(item._replace(path=(*path, *item.path[cut:])))
        elif isinstance(item, Branch):
            branch = Branch(item.node, item.file, item.holds, item.fails)
            branch.body, branch.other = replayed(item.body, cut, path), replayed(item.other, cut, path)
            out.append(branch)
        elif isinstance(item, Loop):
            loop = Loop(item.node, item.file, item.times, item.uneven, item.code, item.sure)
            loop.body = replayed(item.body, cut, path)
            out.append(loop)
        elif isinstance(item, Scope):
            scope = Scope(item.name, item.node)
            scope.body = replayed(item.body, cut, path)
            scope.final = replayed(item.final, cut, path) if item.final is not None else None
            out.append(scope)
        else:
            out.append(item)
    return out


def quiet(items: list[Item], verdicts: list[Verdict], placed: set[ast.AST]) -> list[Item]:
    """What is left of a function without collectives: a few of its calls that cannot be followed.

    Its tests of the rank get their verdict here.
    """
    for key, places in conditions(items, "rank").items():
        for branch, _ in places:
            if branch.node in placed:
                continue
            placed.add(branch.node)
            hidden = unknowns([*branch.body, *branch.other])
            line = getattr(branch.node, "lineno", 1)
            why = f"{hidden[0].what} cannot be followed" if hidden else ""
            verdict = "unknown" if hidden else "matched"
            verdicts.append(Verdict(branch.file.path, line, verdict, key, "none", "none", why))
    found = unknowns(items)
    ranked = [one for one in found if any(condition.kind == "rank" for condition in one.path)]
    return [*ranked[:2], *(one for one in found[:1] if one not in ranked[:2])]


def unknowns(items: list[Item]) -> list[Unknown]:
    """The calls that cannot be followed."""
    out: list[Unknown] = []
    for item in items:
        if isinstance(item, Unknown):
            out.append(item)
        elif isinstance(item, Branch):
            out += unknowns(item.body) + unknowns(item.other)
        elif isinstance(item, (Loop, Scope)):
            out += unknowns(item.body)
            if isinstance(item, Scope) and item.final:
                out += unknowns(item.final)
    return out


def events(items: list[Item]) -> list[Event]:
    """The collectives of a piece of a trace, in the order of the program."""
    out: list[Event] = []
    for item in items:
        if isinstance(item, Event):
            out.append(item)
        elif isinstance(item, Branch):
            out += events(item.body)
            out += events(item.other)
        elif isinstance(item, (Loop, Scope)):
            out += events(item.body)
            if isinstance(item, Scope) and item.final:
                out += events(item.final)
    return out


def conditions(items: list[Item], kind: str) -> dict[str, list[tuple[Branch, Condition]]]:
    """The branches that a kind of test decides, by the key of the test."""
    out: dict[str, list[tuple[Branch, Condition]]] = {}
    waiting: list[list[Item]] = [items]
    while waiting:
        for item in waiting.pop():
            if isinstance(item, Branch):
                seen: dict[str, Condition] = {}
                for condition in (*item.holds, *item.fails):
                    if condition.kind == kind:
                        seen.setdefault(condition.key, condition)
                for key, condition in seen.items():
                    out.setdefault(key, []).append((item, condition))
                waiting += [item.body, item.other]
            elif isinstance(item, (Loop, Scope)):
                waiting.append(item.body)
                if isinstance(item, Scope) and item.final:
                    waiting.append(item.final)
    return out


def loops(items: list[Item]) -> list[Loop]:
    """The loops of a piece of a trace."""
    out: list[Loop] = []
    waiting: list[list[Item]] = [items]
    while waiting:
        for item in waiting.pop():
            if isinstance(item, Branch):
                waiting += [item.body, item.other]
            elif isinstance(item, (Loop, Scope)):
                if isinstance(item, Loop):
                    out.append(item)
                waiting.append(item.body)
                if isinstance(item, Scope) and item.final:
                    waiting.append(item.final)
    return out
