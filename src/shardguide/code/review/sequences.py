"""What each side of a test executes: its collectives in order, read off the trace, and how two sides differ.

The method is PARCOACH's for MPI: a collective is safe when every rank executes the same sequence, whatever way it takes.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import lru_cache

from shardguide.guidance.hints import NamedTuple

from .records import Condition, Path
from .trace import Branch, Event, Item, Leave, Loop, Scope, Unknown

_UNROLL = 16  # turns of a loop that is written with a number
_LONGEST = 2_000  # parts of one sequence


class Op(NamedTuple):
    """One collective."""

    text: str
    event: Event

    @property
    def meets(self) -> tuple[str, str]:
        """What it meets on other ranks: the same operation of the same group, waited for at once or later."""
        return self.event.what, self.event.group


class Fork(NamedTuple):
    """Two ways that a test of something else decides."""

    test: ast.AST
    kind: str
    one: Sequence
    other: Sequence
    decided: Condition | None = None  # what holds on the way ``one``; None where it is more than one condition
    returns: bool = False  # one of the ways left a function, so that what came after it there is on the other alone


class Turns(NamedTuple):
    """A loop."""

    over: str
    loop: Loop
    body: Sequence


class Always(NamedTuple):
    """A try statement with its finally."""

    body: Sequence
    final: Sequence


class Out(NamedTuple):
    """A way out, and out of what."""

    kind: str


class Same(NamedTuple):
    """A function that is called whatever the test says, and in which nothing depends on it."""

    scope: Scope


Part = Op | Fork | Turns | Always | Out | Same
Sequence = tuple[Part, ...]


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
                out.append(Op(_text(item), item))  # type: ignore[arg-type]
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
        if _alike(one, other):
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


def settled(sequence: Sequence, known: dict[str, bool]) -> Sequence:
    """A sequence with the tests decided of which it is known how they come out."""
    out: list[Part] = []
    for part in sequence:
        if isinstance(part, Fork):
            decided = part.decided
            if decided is not None and decided.key in known:
                out += settled(part.one if known[decided.key] == decided.arm else part.other, known)
            else:
                one, other = settled(part.one, known), settled(part.other, known)
                out += one if _alike(one, other) else (part._replace(one=one, other=other),)
        elif isinstance(part, Turns):
            body = settled(part.body, known)
            out += (part._replace(body=body),) if body else ()
        elif isinstance(part, Always):
            out.append(Always(settled(part.body, known), settled(part.final, known)))
        else:
            out.append(part)
        if out and ends(out[-1]):
            break
    return tuple(out)


def open_tests(sequence: Sequence) -> list[str]:
    """The keys of the tests that decide which way it goes, each as often as it stands there."""
    out: list[str] = []
    for part in sequence:
        if isinstance(part, Fork):
            out += [part.decided.key] if part.decided is not None else []
            out += open_tests(part.one) + open_tests(part.other)
        elif isinstance(part, Turns):
            out += open_tests(part.body)
        elif isinstance(part, Always):
            out += open_tests(part.body) + open_tests(part.final)
    return out


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
            out += one if _alike(one, other) else (part._replace(one=one, other=other, returns=True),)
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
            if _alike(one, other):
                sequence = (*sequence[:-1], *one)
                if not one:
                    continue
                return sequence
            return (*sequence[:-1], last._replace(one=one, other=other))
        else:
            return sequence
    return sequence


def ends(part: Part) -> bool:
    """Whether nothing comes after a part."""
    if isinstance(part, Out):
        return True
    return isinstance(part, Fork) and bool(part.one and part.other) and ends(part.one[-1]) and ends(part.other[-1])


def fails(sequence: Sequence) -> bool:
    """Whether a sequence ends with an error, on whatever way: the run ends there, and nobody waits for long."""
    return bool(sequence) and isinstance(sequence[-1], Out) and sequence[-1].kind == "raise"


def leaves(sequence: Sequence) -> bool:
    """Whether a sequence has a way out, on some way."""
    return any(
        isinstance(part, Out) or (isinstance(part, Fork) and (leaves(part.one) or leaves(part.other)))
        for part in sequence
    )


def _text(event: Event) -> str:
    extra = [f"group {event.group}"] if event.group else []
    if event.mode:
        extra.append(event.mode)
    return f"{event.what} ({', '.join(extra)})" if extra else event.what


def _over(item: Loop) -> str:
    if item.times >= 0:
        return f"{item.times} times"
    node = item.node
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return f"for each of {_short(node.iter)}"
    return f"while {_short(node.test)}" if isinstance(node, ast.While) else "again"


@lru_cache(1024)
def _short(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):
        return "…"
    return text if len(text) <= 60 else f"{text[:59]}…"


def shape(sequence: Sequence, all_groups: bool = False) -> tuple[object, ...]:
    """A sequence as plain data: equal where ranks meet in the same collectives. Collectives of a group of its own are for members."""
    out = _shape(sequence, all_groups)
    while out and out[-1] in (("return",), ("exit",), ("raise",)):
        out.pop()  # at the end of everything they change nothing
    return tuple(out)


def _alike(one: Sequence, other: Sequence) -> bool:
    """Whether two ways are the same collectives and ways out."""
    if one is other or (not one and not other):
        return True
    if not one or not other:
        return not any(_shows(part) for part in one or other)
    return _shape(one, True) == _shape(other, True)


def _shows(part: Part) -> bool:
    """Whether a part has anything in its shape."""
    if isinstance(part, Same):
        return bool(part.scope.events)
    if isinstance(part, Turns):
        return any(_shows(inner) for inner in part.body)
    return not isinstance(part, Fork) or bool(_shape((part,), True))


def _shape(sequence: Sequence, all_groups: bool) -> list[object]:
    out: list[object] = []
    for part in sequence:
        if isinstance(part, Op):
            if part.event.code or all_groups:
                out.append(part.meets)
        elif isinstance(part, Turns):
            body = _shape(part.body, all_groups)
            if body:
                out.append((part.over, tuple(body)))
        elif isinstance(part, Fork):
            one, other = _shape(part.one, all_groups), _shape(part.other, all_groups)
            if one != other:
                out.append((id(part.test), tuple(one), tuple(other)))
            else:
                out.extend(one)
        elif isinstance(part, Same):
            if any(event.code or all_groups for event in part.scope.events):
                out.append(id(part.scope))
        elif isinstance(part, Always):
            out.append((tuple(_shape(part.body, all_groups)), tuple(_shape(part.final, all_groups))))
        else:
            out.append((part.kind,))
    return out


def flat(sequence: Sequence, out: frozenset[int] = frozenset()) -> list[Op]:
    """All collectives of a sequence; of a run that takes the ways out of these tests (by id), where some are given."""
    return _flat(sequence, out)[0]


def _flat(sequence: Sequence, tests: frozenset[int]) -> tuple[list[Op], bool]:
    out: list[Op] = []
    for part in sequence:
        if isinstance(part, Op):
            out.append(part)
        elif isinstance(part, Same):
            out.extend(Op(_text(event), event) for event in part.scope.events)
        elif isinstance(part, Turns):
            out.extend(_flat(part.body, tests)[0])
        elif isinstance(part, Always):
            body, left = _flat(part.body, tests)
            out.extend(body + _flat(part.final, tests)[0])
            if left and tests:
                return out, True
        elif isinstance(part, Fork):
            if id(part.test) in tests:
                if leaves(part.one) or leaves(part.other):
                    way, left = _flat(part.one if leaves(part.one) else part.other, tests)
                else:
                    ways = (_flat(part.one, tests)[0], _flat(part.other, tests)[0])
                    way, left = min(ways, key=len), False
                out.extend(way)
                if left:
                    return out, True
            else:
                out.extend(_either(_flat(part.one, tests)[0], _flat(part.other, tests)[0]))
        else:
            return out, True
    return out, False


def _either(one: list[Op], other: list[Op]) -> list[Op]:
    """All collectives of two ways; what both have, such as all that follows a test, once."""
    if not one or not other:
        return one or other
    have = Counter(id(op.event) for op in one)
    out = list(one)
    for op in other:
        if have[id(op.event)]:
            have[id(op.event)] -= 1
        else:
            out.append(op)
    return out


def ways_out(sequence: Sequence) -> dict[int, ast.AST]:
    """The tests that decide about a way out, by id, in order."""
    found: dict[int, ast.AST] = {}
    for part in sequence:
        if isinstance(part, Fork):
            if part.returns or leaves(part.one) or leaves(part.other):
                found[id(part.test)] = part.test
            found |= ways_out(part.one) | ways_out(part.other)
        elif isinstance(part, (Turns, Always)):
            found |= ways_out(part.body)
    return found


def words(sequence: Sequence, limit: int = 160) -> str:
    """A sequence as people read it."""
    text = _words(sequence) or "none"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _words(sequence: Sequence) -> str:
    said: list[str] = []
    for part in sequence:
        if isinstance(part, Op):
            said.append(part.text)
        elif isinstance(part, Turns):
            body = _words(part.body)
            if body:
                said.append(f"{part.over}: ({body})")
        elif isinstance(part, Fork):
            one, other = _words(part.one), _words(part.other)
            test = part.test.test if isinstance(part.test, (ast.If, ast.IfExp)) else None
            where = f"if {_short(test)}" if test is not None else "on one way"
            if one == other:
                said.extend([one] if one else [])
            elif one:
                said.append(f"{where}: ({one})" + (f", else: ({other})" if other else ""))
            else:
                said.append(f"{where.replace('if ', 'unless ', 1)}: ({other})")
        elif isinstance(part, Same):
            said.append(f"{part.scope.name}()")
        elif isinstance(part, Always):
            said.extend(one for one in (_words(part.body), _words(part.final)) if one)
        elif part.kind in ("break", "continue", "return"):
            said.append(part.kind)
    return ", ".join(said[:12]) + (" …" if len(said) > 12 else "")
