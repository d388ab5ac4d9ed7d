"""Reads one side of a test off a trace: the sequence of collectives of the ranks for which it holds, or fails."""

from __future__ import annotations

import ast

from .records import Condition, Path
from .sequences import Always, Fork, Op, Out, Part, Same, Sequence, Turns, alike, ends, label, leaves, short, shows
from .trace import Branch, Event, Item, Leave, Loop, Scope, Unknown

_UNROLL = 16  # turns of a loop that is written with a number
_LONGEST = 2_000  # parts of one sequence


class Reader:
    """Reads one side: a test is assumed to hold or to fail."""

    def __init__(self, key: str, arm: bool, holding: set[int]) -> None:
        self.key = key
        self.arm = arm
        self.holding = holding  # functions (by id) in which something depends on the test
        self.inside = 0  # arms of the test around
        self.unknown: list[Unknown] = []  # calls on the way that cannot be followed
        self.cut = False  # it is longer than can be compared
        self.size = 0

    def possible(self, conditions: Path) -> bool | None:
        """Whether conditions hold under the assumption; None where they depend on something else too."""
        answer: bool | None = True
        for condition in conditions:
            if condition.key == self.key:
                holds = condition.arm == self.arm
            elif self.arm and self.key.startswith("rank == ") and condition.key.startswith("rank == "):
                holds = not condition.arm  # rank 0 is not rank 1
            else:
                answer = None
                continue
            if not holds:
                return False
        return answer

    def read(self, items: list[Item]) -> Sequence:
        """The sequence of a piece of the trace; what follows a way out is not in it."""
        out: list[Part] = []
        for item in items:
            self.size += 1
            if self.size > _LONGEST:
                self.cut = True
                break
            kind = item.__class__
            if kind is Unknown:
                self.unknown.append(item)  # type: ignore[arg-type]
                continue
            if kind is Scope:
                out += self._scope(item)  # type: ignore[arg-type]
            elif kind is Branch:
                out += self._branch(item)  # type: ignore[arg-type]
            elif kind is Event:
                out.append(Op(label(item), item))  # type: ignore[arg-type]
                continue
            elif kind is Loop:
                out += self._loop(item)  # type: ignore[arg-type]
            elif kind is Leave:
                out.append(Out(item.kind))  # type: ignore[union-attr]
            if out and ends(out[-1]):
                break
        return tuple(out)

    def _branch(self, item: Branch) -> Sequence:
        holds, fails = self.possible(item.holds), self.possible(item.fails)
        if holds is not None or fails is not None:
            self.inside += 1
            found = self.read(item.body if holds is True or fails is False else item.other)
            self.inside -= 1
            return found
        one, other = self.read(item.body), self.read(item.other)
        kind = next((condition.kind for condition in item.holds if condition.kind), "")
        # An end by an error that another test decides, with the rank or alone: the run ends here, whatever the others do.
        if one and isinstance(one[-1], Out) and one[-1].kind in ("raise", "exit"):
            return other
        if other and isinstance(other[-1], Out) and other[-1].kind in ("raise", "exit"):
            return one
        if alike(one, other):
            return one
        return (Fork(item.node, kind, one, other, self._left_open(item)),)

    def _left_open(self, item: Branch) -> Condition | None:
        """What is left of a test under the assumption, said of the way on which it holds, if it is one condition."""
        longer, turned = (item.holds, False) if len(item.holds) >= len(item.fails) else (item.fails, True)
        left = [one for one in longer if self.possible((one,)) is None]
        if len(left) != 1 or left[0].kind:
            return None
        return left[0]._replace(arm=not left[0].arm) if turned else left[0]

    def _loop(self, item: Loop) -> Sequence:
        body = _without_last(self.read(item.body), "continue")
        if isinstance(item.node, ast.While) and isinstance(item.node.test, ast.Constant):
            body = _sooner(body)
        if not body:
            return ()
        last = body[-1]
        if isinstance(last, Out):
            if last.kind == "break":
                return body[:-1]  # once at most
            return (Turns(_over(item), item, body),)
        plain = not any(isinstance(part, (Fork, Out, Always)) for part in body)
        if 0 <= item.times <= _UNROLL and plain and item.times * len(body) <= 200:
            return body * item.times
        return (Turns(_over(item), item, body),)

    def _scope(self, item: Scope) -> Sequence:
        if not self.inside and item.node is not None and id(item) not in self.holding:
            return (Same(item),)
        if item.final is None:
            body = self.read(item.body)
            return _closed(body) if item.node is not None else body
        body, final = self.read(item.body), self.read(item.final)
        if body and ends(body[-1]):
            return (*body[:-1], *final, body[-1])
        if leaves(body):
            return (Always(body, final),)
        return (*body, *final)


def holders(items: list[Item], key: str, found: set[int]) -> bool:
    """Whether anything in a piece of a trace depends on a test; the functions for which that is so are collected."""
    here = False
    for item in items:
        if isinstance(item, Branch):
            if any(condition.key == key for condition in (*item.holds, *item.fails)):
                here = True
            here = holders(item.body, key, found) or here
            here = holders(item.other, key, found) or here
        elif isinstance(item, Loop):
            if holders(item.body, key, found):
                found.add(id(item))
                here = True
        elif isinstance(item, Scope) and key in item.seen.tests:
            holders(item.body, key, found)
            if item.final:
                holders(item.final, key, found)
            found.add(id(item))
            here = True
    return here


def _sooner(body: Sequence) -> Sequence:
    """A turn of an endless loop without the ways that begin it anew before any collective: they only delay it."""
    out: list[Part] = []
    for at, part in enumerate(body):
        if not isinstance(part, Fork):
            return (*out, *body[at:])
        if part.one == (Out("continue"),):
            out += part.other
        elif part.other == (Out("continue"),):
            out += part.one
        else:
            return (*out, *body[at:])
        if out:
            return (*out, *body[at + 1 :])
    return tuple(out)


def _closed(sequence: Sequence) -> Sequence:
    """The sequence of a function for its caller: what follows a way that returns is on the other way alone."""
    out: list[Part] = []
    for at, part in enumerate(sequence):
        if isinstance(part, Out) and part.kind == "return":
            break
        if isinstance(part, Fork) and (_returns(part.one) or _returns(part.other)):
            rest = sequence[at + 1 :]
            one, other = _closed((*part.one, *rest)), _closed((*part.other, *rest))
            if any(shows(each) for each in one) or any(shows(each) for each in other):
                out.append(part._replace(one=one, other=other, returns=True))
            break
        out.append(part)
    return tuple(out)


def _returns(sequence: Sequence) -> bool:
    """Whether a sequence returns on some way, loops aside."""
    return any(
        part.kind == "return"
        if isinstance(part, Out)
        else isinstance(part, Fork) and (_returns(part.one) or _returns(part.other))
        for part in sequence
    )


def _without_last(sequence: Sequence, kind: str) -> Sequence:
    """The sequence without a way out at its end, where it changes nothing."""
    while sequence:
        last = sequence[-1]
        if isinstance(last, Out) and last.kind == kind:
            sequence = sequence[:-1]
        elif isinstance(last, Fork):
            one, other = _without_last(last.one, kind), _without_last(last.other, kind)
            if alike(one, other):
                sequence = (*sequence[:-1], *one)
                if not one:
                    continue
                return sequence
            return (*sequence[:-1], last._replace(one=one, other=other))
        else:
            return sequence
    return sequence


def _over(item: Loop) -> str:
    if item.times >= 0:
        return f"{item.times} times"
    node = item.node
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return f"for each of {short(node.iter)}"
    return f"while {short(node.test)}" if isinstance(node, ast.While) else "again"
