"""Objects that a program makes of its own classes: the constructor is read for what it puts where."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .calls import ASSUMED
from .classes import HOOK, JOINABLE, Class
from .values import Function, Instance, Value

if TYPE_CHECKING:
    from .evaluate import Evaluator


def instance(
    world: Evaluator, node: ast.AST, cls: Class, args: list[Value], named: dict[str, Value], name: str = ""
) -> Value:
    """An object made by calling a class."""
    kind = "own" if cls.is_a(JOINABLE) else "hook" if cls.is_a(HOOK) else "object"
    if kind == "object" and any(isinstance(one, str) and one.startswith("torch.nn.") for one in cls.order):
        kind = "module"
    made = Instance(
        name or f"{cls.name}@{getattr(node, 'lineno', 0)}.{getattr(node, 'col_offset', 0)}", kind, cls, node
    )
    made.file = world.file
    made.given = {**{str(i): one for i, one in enumerate(args)}, **named}
    value = Value("object", made.name, ref=made, make=made.name if name else "")
    found = cls.find("__init__")
    if found is not None and (kind in ("own", "hook") or not world.quiet):
        _construct(world, made, value, Function(found[0].file, found[1], found[0], value), args, named, node)
    return value


def _construct(
    world: Evaluator,
    made: Instance,
    value: Value,
    function: Function,
    args: list[Value],
    named: dict[str, Value],
    node: ast.AST,
) -> None:
    """Read a constructor: no step of it is one of an iteration, and no test of it is decided."""
    outer, quiet, handlers = world.items, world.quiet, world.handlers
    world.items, world.quiet, world.handlers = [], True, []
    try:
        world.enter(function, args, named, node)
    finally:
        world.items, world.quiet, world.handlers = outer, quiet, handlers
    if made.cls is not None and made.cls.name in ASSUMED:
        made.waits.clear()  # hooks of private arguments
