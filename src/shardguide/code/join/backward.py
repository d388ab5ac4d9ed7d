"""What autograd calls in the backward pass: hooks on tensors and modules, and the backward of the user's autograd functions."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .classes import JOINABLE, Class
from .steps import Loop, Unknown
from .values import Function, Instance, Value, dtype_of, shape_of, text

if TYPE_CHECKING:
    from .evaluate import Evaluator


def register(world: Evaluator, node: ast.Call, args: list[Value], base: Value) -> Value:
    """A hook that autograd calls in the backward pass."""
    given = next((one for one in args if one.kind == "function"), None)
    holder = world.env.get("self")
    owner = holder.ref if holder is not None and holder.kind == "object" else world.owner
    if given is None:
        if not world.quiet or owner is None:
            world.add(Unknown(f"the hook {args[0].text} could not be followed", node, world.file, world.owner))
        return text("handle")
    if owner is not None:
        key = base.text if base.text.startswith("each of ") else ""
        owner.waits.append((given.ref, key.removeprefix("each of "), base, node, world.file))
        if owner not in world.registered:
            world.registered.append(owner)
    return text("handle")


def applied(world: Evaluator, node: ast.Call, cls: Class, args: list[Value], named: dict[str, Value]) -> Value:
    """``F.apply(…)`` of an autograd function: its forward here, its backward in the backward pass."""
    holder = Instance(f"ctx@{getattr(node, 'lineno', 0)}", "object", None, node)
    context = Value("object", holder.name, ref=holder)
    out = text(f"{cls.name}(…)", *args)
    there = cls.find("forward")
    if there is not None and world.relevant(there[1]):
        out = world.enter(Function(there[0].file, there[1], there[0]), [context, *args], named, node)
    back = cls.find("backward")
    if back is not None and world.relevant(back[1]) and world.owner is not None:
        given = out if out.kind == "tensor" else args[0] if args else text("the gradient")
        world.owner.waits.append((Function(back[0].file, back[1], back[0], context), "", given, node, world.file))
        if world.owner not in world.registered:
            world.registered.append(world.owner)
    return out


def backward(world: Evaluator, node: ast.AST) -> None:
    """What autograd calls: the hooks that were registered."""
    for owner in world.registered:
        for function, over, base, where, file in owner.waits:
            outer, world.items = world.items, []
            before, world.owner = (
                world.owner,
                owner if owner.cls is not None and owner.cls.is_a(JOINABLE) else world.owner,
            )
            gradient = Value("tensor", f"the gradient of {base.text}", shape_of(base), dtype_of(base), make=base.make)
            world.enter(function, [gradient] * len(_positions(function)), {}, where)
            inner, world.items, world.owner = world.items, outer, before
            if not inner:
                continue
            if over:
                key = Value("text", over, flags=frozenset({"autograd"}), make=base.make)
                world.add(Loop(key, inner, where, file, owner))
            else:
                world.items.extend(inner)


def _positions(function: Function) -> list[ast.arg]:
    names = list(function.node.args.args)
    return names[1:] if function.bound is not None else names
