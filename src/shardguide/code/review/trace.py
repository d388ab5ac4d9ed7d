"""What a program executes, as a tree: collectives in order, branches with both arms, loops, calls, and ways out.

The walker writes it while it follows the program; ``sequences.py`` reads off it what each side of a rank test executes.
"""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple

from .project import File
from .records import Condition, Path, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """The body of a function that is called, or a try statement with a finally.

    What is asked of it is worked out once, and only when it is complete.
    """

    __slots__ = ("_body", "_events", "_later", "_seen", "final", "name", "node")

    def __init__(self, name: str, node: ast.AST | None) -> None:
        self.name = name
        self.node = node
        self.final: list[Item] | None = None  # what is executed on whatever way out
        self._body: list[Item] = []
        self._later: tuple[Scope, int, Path] | None = None  # what it is a copy of, not made yet; see again()
        self._seen: Seen | None = None
        self._events: list[Event] | None = None

    @property
    def body(self) -> list[Item]:
        """What is executed in it."""
        if self._later is not None:
            of, cut, path = self._later
            self._later = None
            self._body = replayed(of.body, cut, path, iter(self.events))
        return self._body

    @body.setter
    def body(self, body: list[Item]) -> None:
        self._body = body

    @property
    def model(self) -> list[Item]:
        """The same but for the conditions of its collectives, without making a copy."""
        return self._later[0].model if self._later is not None else self._body

    @property
    def seen(self) -> Seen:
        """What is in it."""
        if self._seen is None:
            self._seen = seen([self.body, self.final or []])
        return self._seen

    @property
    def events(self) -> list[Event]:
        """Its collectives in order."""
        if self._events is None:
            self._events = events(self.body) + events(self.final) if self.final else events(self.body)
        return self._events

    def again(self, cut: int, path: Path) -> Scope:
        """A function once more, under other conditions: ``cut`` of its old ones are replaced by ``path``.

        Its collectives are there at once, the rest when somebody looks at it, which is seldom.
        """
        copy = Scope(self.name, self.node)
        copy._later = (self, cut, path)
        copy._seen = self.seen
        copy._events = [one._replace(path=(*path, *one.path[cut:])) for one in self.events]
        return copy


class Seen(NamedTuple):
    """What a piece of a trace holds."""

    parts: int
    tests: frozenset[str]  # the keys of the tests of the rank and of this rank's data
    uneven: bool  # whether a loop does not run equally often on all ranks


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


def seen(pieces: list[list[Item]]) -> Seen:
    """What pieces of a trace hold."""
    total, uneven = 0, False
    tests: set[str] = set()
    waiting = pieces
    while waiting:
        items = waiting.pop()
        total += len(items)
        for item in items:
            kind = item.__class__
            if kind is Branch:
                for condition in (*item.holds, *item.fails):  # type: ignore[union-attr]
                    if condition.kind == "rank" or condition.kind == "local":
                        tests.add(condition.key)
                waiting += [item.body, item.other]  # type: ignore[union-attr]
            elif kind is Loop:
                uneven = uneven or bool(item.uneven)  # type: ignore[union-attr]
                waiting.append(item.body)  # type: ignore[union-attr]
            elif kind is Scope:
                inner = item.seen  # type: ignore[union-attr]
                total += inner.parts
                tests |= inner.tests
                uneven = uneven or inner.uneven
    return Seen(total, frozenset(tests), uneven)


def replayed(items: list[Item], cut: int, path: Path, events: Iterator[Event]) -> list[Item]:
    """A piece of a trace once more, under other conditions, with these collectives in place of its own."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, Unknown):
            out.append(Unknown(item.what, item.node, (*path, *item.path[cut:])))
        elif isinstance(item, Event):
            out.append(next(events))
        elif isinstance(item, Branch):
            branch = Branch(item.node, item.file, item.holds, item.fails)
            branch.body = replayed(item.body, cut, path, events)
            branch.other = replayed(item.other, cut, path, events)
            out.append(branch)
        elif isinstance(item, Loop):
            loop = Loop(item.node, item.file, item.times, item.uneven, item.code, item.sure)
            loop.body = replayed(item.body, cut, path, events)
            out.append(loop)
        elif isinstance(item, Scope):
            scope = Scope(item.name, item.node)
            scope.body = replayed(item.body, cut, path, events)
            scope.final = replayed(item.final, cut, path, events) if item.final is not None else None
            scope._seen = item.seen
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
        kind = item.__class__
        if kind is Event:
            out.append(item)  # type: ignore[arg-type]
        elif kind is Scope:
            out += item.events  # type: ignore[union-attr]
        elif kind is Branch:
            out += events(item.body)  # type: ignore[union-attr]
            out += events(item.other)  # type: ignore[union-attr]
        elif kind is Loop:
            out += events(item.body)  # type: ignore[union-attr]
    return out


def conditions(items: list[Item], kind: str, own: bool = False) -> dict[str, list[tuple[Branch, Condition]]]:
    """The branches that a kind of test, "rank" or "local", decides, by the key of the test.

    Of a copy that nobody has looked into it is the branches of what it is a copy of, unless ``own``.
    """
    out: dict[str, list[tuple[Branch, Condition]]] = {}
    waiting: list[list[Item]] = [items]
    while waiting:
        for item in waiting.pop():
            what = item.__class__
            if what is Branch:
                seen: dict[str, Condition] = {}
                for condition in item.holds:  # type: ignore[union-attr]
                    if condition.kind == kind:
                        seen.setdefault(condition.key, condition)
                for condition in item.fails:  # type: ignore[union-attr]
                    if condition.kind == kind:
                        seen.setdefault(condition.key, condition)
                for key, condition in seen.items():
                    out.setdefault(key, []).append((item, condition))  # type: ignore[arg-type]
                waiting += [item.body, item.other]  # type: ignore[union-attr]
            elif what is Loop:
                waiting.append(item.body)  # type: ignore[union-attr]
            elif what is Scope and item.seen.tests:  # type: ignore[union-attr]
                waiting.append(item.body if own else item.model)  # type: ignore[union-attr]
                if item.final:  # type: ignore[union-attr]
                    waiting.append(item.final)  # type: ignore[union-attr]
    return out


def uneven_loops(items: list[Item]) -> list[Loop]:
    """The loops of a piece of a trace that don't run equally often on all ranks."""
    out: list[Loop] = []
    waiting: list[list[Item]] = [items]
    while waiting:
        for item in waiting.pop():
            if isinstance(item, Branch):
                waiting += [item.body, item.other]
            elif isinstance(item, Loop):
                if item.uneven:
                    out.append(item)
                waiting.append(item.body)
            elif isinstance(item, Scope) and item.seen.uneven:
                waiting.append(item.body)
                if item.final:
                    waiting.append(item.final)
    return out


def only_unknown(items: list[Item]) -> list[Item]:
    """The first of calls that cannot be followed, if there is nothing else."""
    for item in items:
        if item.__class__ is not Unknown:
            return []
    return items[:1]


def breaks(items: list[Item], path: Path = ()) -> list[Path]:
    """The ways on which a loop is left by break, each as its conditions inside the loop."""
    out: list[Path] = []
    for item in items:
        if isinstance(item, Leave) and item.kind == "break":
            out.append(path)
        elif isinstance(item, Branch):
            out += breaks(item.body, (*path, *item.holds)) + breaks(item.other, (*path, *item.fails))
        elif isinstance(item, Scope) and item.node is None:
            out += breaks(item.body, path)
    return out
