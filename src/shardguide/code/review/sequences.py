"""What each side of a test executes: its collectives in order, and how two sides differ; reader.py reads them off the trace.

The method is PARCOACH's for MPI: a collective is safe when every rank executes the same sequence, whatever way it takes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest

from shardguide.guidance.hints import NamedTuple

from .records import Condition
from .trace import Event, Loop, Scope


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
                out += one if alike(one, other) else (part._replace(one=one, other=other),)
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


def label(event: Event) -> str:
    """A collective as people read it: its name, its group, whether it is waited for later."""
    extra = [f"group {event.group}"] if event.group else []
    if event.mode:
        extra.append(event.mode)
    return f"{event.what} ({', '.join(extra)})" if extra else event.what


@lru_cache(1024)
def short(node: ast.AST) -> str:
    """An expression as written, cut where it is long."""
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):
        return "…"
    return text if len(text) <= 60 else f"{text[:59]}…"


def shape(sequence: Sequence, all_groups: bool = False) -> tuple[object, ...]:
    """A sequence as plain data: equal where ranks meet in the same collectives. Collectives of a group of its own are for members."""
    out = list(_shape(sequence, all_groups))
    while out and out[-1] in (("return",), ("exit",), ("raise",)):
        out.pop()  # at the end of everything they change nothing
    return tuple(out)


def alike(one: Sequence, other: Sequence) -> bool:
    """Whether two ways are the same collectives and ways out."""
    if one is other or (not one and not other):
        return True
    if not one or not other:
        return not any(shows(part) for part in one or other)
    pairs = zip_longest(_shape(one, True), _shape(other, True))  # most differ in what they begin with
    return all(here == there for here, there in pairs)


def shows(part: Part) -> bool:
    """Whether a part has anything in its shape."""
    if isinstance(part, Same):
        return bool(part.scope.events)
    if isinstance(part, Turns):
        return any(shows(inner) for inner in part.body)
    if isinstance(part, Fork):
        return any(shows(inner) for inner in part.one) or any(shows(inner) for inner in part.other)
    return True


def _shape(sequence: Sequence, all_groups: bool) -> Iterator[object]:
    for part in sequence:
        if isinstance(part, Op):
            if part.event.code or all_groups:
                yield part.meets
        elif isinstance(part, Turns):
            body = tuple(_shape(part.body, all_groups))
            if body:
                yield part.over, body
        elif isinstance(part, Fork):
            one, other = tuple(_shape(part.one, all_groups)), tuple(_shape(part.other, all_groups))
            if one != other:
                yield id(part.test), one, other
            else:
                yield from one
        elif isinstance(part, Same):
            if any(event.code or all_groups for event in part.scope.events):
                yield id(part.scope)
        elif isinstance(part, Always):
            yield tuple(_shape(part.body, all_groups)), tuple(_shape(part.final, all_groups))
        else:
            yield (part.kind,)


def flat(sequence: Sequence, out: frozenset[int] = frozenset()) -> list[Op]:
    """All collectives of a sequence; of a run that takes the ways out of these tests (by id), where some are given."""
    return _flat(sequence, out)[0]


def _flat(sequence: Sequence, tests: frozenset[int]) -> tuple[list[Op], bool]:
    out: list[Op] = []
    for part in sequence:
        if isinstance(part, Op):
            out.append(part)
        elif isinstance(part, Same):
            out.extend(Op(label(event), event) for event in part.scope.events)
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
            where = f"if {short(test)}" if test is not None else "on one way"
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
