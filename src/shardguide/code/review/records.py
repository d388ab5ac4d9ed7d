"""What the reading of code works with: things that a program makes, the conditions it makes them under, and findings."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .project import File


class Edit(NamedTuple):
    """A replacement in the source; lines from 1, columns in UTF-8 bytes from 0, as ``ast`` counts."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Finding(NamedTuple):
    """One mistake at one place."""

    code: str
    path: str
    line: int  # from 1
    column: int  # from 1, in characters
    certain: bool
    words: tuple[tuple[str, str], ...]  # what the rule's message has in braces
    edits: tuple[Edit, ...] = ()


class Problem(NamedTuple):
    """A file that could not be read, and why; the rest goes on."""

    path: str
    line: int
    why: str


class Verdict(NamedTuple):
    """What reading says of the collectives around a test of the rank."""

    path: str
    line: int
    verdict: str  # "matched", "mismatched", "unknown"
    test: str
    one: str  # what ranks execute for which the test holds
    other: str  # what the others execute
    why: str  # of "unknown"


class Condition(NamedTuple):
    """One branch that was taken on the way to a statement."""

    key: str  # equal for the same test, whatever its spelling
    arm: bool  # whether the test holds here
    # "rank" (differs over the ranks), "local" (asks for this rank's own data), "guard" (asks what the objects or the
    # release are), "except", "" (any other)
    kind: str
    sure: bool = True  # "rank": whether it is known to be the rank, not only called so


Path = tuple[Condition, ...]


class Thing:
    """What a name stands for: a model, an optimizer, a rank; identity matters, since fully_shard changes its argument in place."""

    __slots__ = ("attrs", "file", "had", "kind", "marks", "name", "node", "of", "sure")

    def __init__(self, kind: str, name: str = "", node: ast.AST | None = None, sure: bool = True) -> None:
        self.kind = kind
        self.name = name  # what it was made by, or what it is called
        self.node = node
        self.sure = sure
        self.of: tuple[Thing, ...] = ()  # what it was made from: parameters of a model, an optimizer of parameters
        self.attrs: dict[str, Things] = {}
        self.marks: list[Mark] = []  # what happened to it, in order
        self.had: set[str] = set()  # what they say
        self.file: File | None = None

    def home(self, otherwise: File) -> File:
        """The file that it was made in."""
        return self.file if self.file is not None else otherwise


Things = tuple[Thing, ...]


class Mark(NamedTuple):
    """Something that happened to a thing."""

    what: str
    node: ast.AST
    path: Path
    at: int  # order of events


class Call(NamedTuple):
    """A call with what is known of it."""

    node: ast.Call
    name: str  # short name of what is called, "" for what is not PyTorch's
    full: str  # its full name
    owner: Things  # for methods: on what
    method: str
    args: tuple[Things, ...]
    named: dict[str, Things]

    def argument(self, name: str, position: int = -1) -> ast.expr | None:
        """The expression given for a parameter."""
        for keyword in self.node.keywords:
            if keyword.arg == name:
                return keyword.value
        if 0 <= position < len(self.node.args) and not any(isinstance(a, ast.Starred) for a in self.node.args):
            return self.node.args[position]
        return None

    def things(self, name: str, position: int = -1) -> Things:
        """What the argument of a parameter stands for."""
        return self.named.get(name) or (self.args[position] if 0 <= position < len(self.args) else ())

    def spread(self) -> bool:
        """Whether it has ``*args`` or ``**kwargs``, so that what it is given is not all known."""
        return any(keyword.arg is None for keyword in self.node.keywords) or any(
            isinstance(argument, ast.Starred) for argument in self.node.args
        )


def compatible(one: Path, other: Path) -> bool:
    """Whether one run can take both ways."""
    arms = {condition.key: condition.arm for condition in one}
    return all(arms.get(condition.key, condition.arm) == condition.arm for condition in other)


def implied(mark: Path, here: Path) -> bool:
    """Whether who is here has surely passed there."""
    if not mark:
        return True
    have = {(condition.key, condition.arm) for condition in here}
    return all((condition.key, condition.arm) in have for condition in mark)


def marked(thing: Thing, what: str, path: Path, before: int = -1) -> str:
    """Say "yes", "maybe" or "no": whether ``what`` happened to the thing on the way to ``path``."""
    answer = "no"
    for mark in thing.marks if what in thing.had else ():
        if mark.what != what or (before >= 0 and mark.at >= before):
            continue
        if implied(mark.path, path):
            return "yes"
        if compatible(mark.path, path):
            answer = "maybe"
    return answer
