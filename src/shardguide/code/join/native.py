"""Calls of PyTorch's own classes that make collectives in C++, and methods of process groups."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .calls import BACKWARD, BUCKETS, GROUP_METHODS, REDUCER, USED_MAP, USED_SOURCE, WRAPPED
from .known import certain
from .steps import Loop, Op
from .values import Instance, Value, constant, text

if TYPE_CHECKING:
    from .evaluate import Evaluator


def native(
    world: Evaluator, node: ast.Call, base: Value, name: str, args: list[Value], named: dict[str, Value]
) -> Value | None:
    """A call that stands for collectives; None for any other."""
    holder = _holder(world, base)
    if base.text.endswith(".reducer") and holder is not None:
        if name in REDUCER:
            op = Op(REDUCER[name].op, node, world.file, world.owner)
            op.native = REDUCER[name].where
            op.group = world.attribute(Value("object", holder.name, ref=holder), "process_group")
            op.waited = True
            world.add(op)
            return Value("work", "work", ref=(op,)) if name == "_run_comm_hook" else text("whether they were rebuilt")
        if name == BACKWARD:
            _reduced(world, node, holder)
            return constant(None)
        if name == "_get_zeros_like_grad_buckets":
            return text(BUCKETS)
        if name == USED_MAP:
            return Value("tensor", USED_MAP, "of the parameters", "int32")
        return text(f"{base.text}.{name}()")
    if name in GROUP_METHODS and (
        base.text.endswith(("group", "pg", "GROUP", "WORLD")) or (base.kind == "object" and base.ref.kind == "group")
    ):
        op = Op(GROUP_METHODS[name], node, world.file, world.owner)
        op.group = None if base.text == "WORLD" else base
        op.tensor = args[0] if args else None
        if (
            op.tensor is not None
            and op.tensor.kind == "sequence"
            and isinstance(op.tensor.ref, tuple)
            and len(op.tensor.ref) == 1
        ):
            op.tensor = op.tensor.ref[0]
        op.reduce = "SUM" if "reduce" in op.name else ""
        op.is_async = True
        op.waited = holder is not None and bool(WRAPPED.get(holder.cls.name if holder.cls else ""))
        op.told = f"result {world.told}"
        world.told += 1
        world.add(op)
        return Value("work", "work", ref=(op,))
    return None


def _holder(world: Evaluator, base: Value) -> Instance | None:
    """The object of PyTorch that is at work."""
    for name in ("self", "ddp", "zero"):
        one = world.env.get(name)
        if one is not None and one.kind == "object" and one.ref.cls is not None and one.ref.cls.name in WRAPPED:
            held: Instance = one.ref
            return held
    return None


def _reduced(world: Evaluator, node: ast.Call, holder: Instance) -> None:
    """DDP's backward: a reduction of each bucket, then, with find_unused_parameters, one of the map of used parameters."""
    group = world.attribute(Value("object", holder.name, ref=holder), "process_group")
    op = Op(REDUCER["_run_comm_hook"].op, node, world.file, world.owner)
    op.native, op.group, op.waited = REDUCER["_run_comm_hook"].where, group, True
    world.add(Loop(text(BUCKETS), [op], node, world.file, world.owner))
    unused = world.attribute(Value("object", holder.name, ref=holder), "find_unused_parameters")
    known = certain(unused)
    if world.decide(unused, node) if known is None else known:
        used = Op("all_reduce", node, world.file, world.owner)
        used.native, used.group, used.reduce, used.waited = USED_SOURCE, group, "SUM", True
        used.tensor = Value("tensor", USED_MAP, "of the parameters", "int32")
        world.add(used)


def wrapped(world: Evaluator, what: Value) -> bool:
    """Whether something is what a class of PyTorch wraps: the user's module or optimizer, not its own."""
    holder = world.env.get("self")
    if holder is None or holder.kind != "object" or holder.ref.cls is None:
        return False
    names = WRAPPED.get(holder.ref.cls.name, ())
    held = holder.ref.attrs
    return any(
        f"{holder.ref.name}.{name}" in what.text or (name in held and held[name].text in what.text) for name in names
    )
