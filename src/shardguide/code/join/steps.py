"""What following code gives: collectives, announcements and what could not be followed, in order, with the branches taken."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple

from .values import Instance, Value

if TYPE_CHECKING:
    from ..review.project import File
else:
    File = "File"


class Op:
    """One collective."""

    __slots__ = (
        "file",
        "given",
        "group",
        "is_async",
        "name",
        "native",
        "node",
        "owner",
        "reduce",
        "root",
        "tensor",
        "told",
        "waited",
    )

    def __init__(self, name: str, node: ast.AST, file: File, owner: Instance | None) -> None:
        self.name = name
        self.node = node
        self.file = file
        self.owner = owner  # the joinable that makes it
        self.group: Value | None = None  # None: the default group
        self.tensor: Value | None = None
        self.reduce = ""
        self.root: Value | None = None
        self.is_async = False
        self.waited = False
        self.native = ""
        self.given: dict[str, Value] = {}  # all arguments by name
        self.told = ""  # the text of its result


class Notify:
    """``Join.notify_join_context(…)``."""

    __slots__ = ("file", "node", "owner", "target")

    def __init__(self, node: ast.AST, file: File, owner: Instance | None, target: Value | None) -> None:
        self.node = node
        self.file = file
        self.owner = owner
        self.target = target


class Loop:
    """Collectives made once for each element of something."""

    __slots__ = ("file", "items", "key", "node", "owner")

    def __init__(self, key: Value, items: list[Step], node: ast.AST, file: File, owner: Instance | None) -> None:
        self.key = key
        self.items = items
        self.node = node
        self.file = file
        self.owner = owner


class Unknown:
    """Something that may make collectives and could not be followed."""

    __slots__ = ("file", "node", "owner", "why")

    def __init__(self, why: str, node: ast.AST, file: File, owner: Instance | None) -> None:
        self.why = why
        self.node = node
        self.file = file
        self.owner = owner


class Event:
    """A call that the check of a Join has to know: the forward of a DDP model, a step of its optimizer, a with statement."""

    __slots__ = ("file", "node", "owner", "what")

    def __init__(self, what: str, node: ast.AST, file: File, owner: Instance | None) -> None:
        self.what = what
        self.node = node
        self.file = file
        self.owner = owner


Step = Op | Notify | Loop | Unknown | Event


class Choice(NamedTuple):
    """A branch taken."""

    key: str
    arm: bool
    flags: frozenset[str]
    node: ast.AST
    at: int  # how many steps stood before it
    file: File
    code: str  # the test in terms of shared objects; "" where it cannot be written so

    @property
    def words(self) -> str:
        """The test as written."""
        return self.file.source(self.node, 60)


class Path(NamedTuple):
    """One way through the code."""

    steps: tuple[Step, ...]
    choices: tuple[Choice, ...]
    result: Value
    writes: frozenset[str]  # attributes that were assigned, as "J.n"; "+J.n" for counted up
    env: dict[str, Value]
    sites: tuple[Site, ...] = ()


class Site(NamedTuple):
    """A ``with Join(…)`` that was followed."""

    join: Instance
    node: ast.AST
    file: File
    steps: tuple[Step, ...]  # inside it
    around: tuple[ast.Try, ...]


def flat(steps: tuple[Step, ...] | list[Step]) -> list[Step]:
    """All steps, those in loops once."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            out.extend(flat(step.items))
        else:
            out.append(step)
    return out


def talks(steps: tuple[Step, ...] | list[Step]) -> list[Step]:
    """Collectives, loops of them and what is unknown; announcements and events left out."""
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            inner = talks(step.items)
            if inner:
                out.append(Loop(step.key, inner, step.node, step.file, step.owner))
        elif isinstance(step, (Op, Unknown)):
            out.append(step)
    return out
