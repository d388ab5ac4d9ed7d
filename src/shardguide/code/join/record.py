"""A collective as a step: its tensor, group, operation and root from the arguments."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .calls import OPERATION, Signature
from .steps import Op
from .values import Instance, Value, constant, dtype_of, shape_of

if TYPE_CHECKING:
    from .evaluate import Evaluator


def communicate(
    world: Evaluator,
    node: ast.Call,
    name: str,
    signature: Signature,
    args: list[Value],
    named: dict[str, Value],
    full: str,
) -> Value:
    """Note a collective, and say what its call gives."""
    given = {
        **dict(zip(signature.order, args, strict=False)),
        **{OPERATION.get(key, key): value for key, value in named.items()},
    }
    op = Op(name, node, world.file, world.owner)
    op.group = given.get("group")
    if op.group is not None and (
        op.group.text in ("WORLD", "None") or (op.group.kind == "constant" and op.group.ref is None)
    ):
        op.group = None
    tensor = given.get(signature.tensor) if signature.tensor else None
    op.tensor = tensor
    op.given = given
    reduce = given.get("op")
    op.reduce = reduce.text.rpartition(".")[2] if reduce is not None else "SUM" if "op" in signature.order else ""
    op.root = next((given[one] for one in ("src", "dst", "group_src", "group_dst") if one in given), None)
    later = given.get("async_op")
    op.is_async = name in ("isend", "irecv") or (later is not None and later.kind == "constant" and bool(later.ref))
    world.add(op)
    op.told = f"result {world.told}"
    world.told += 1
    if name == "new_group":
        made = Instance(f"group@{node.lineno}.{node.col_offset}", "group", None, node)
        return Value("object", made.name, ref=made)
    _results(world, node, name, signature, tensor, op)
    if full.startswith(("torch.distributed._functional", "torch.distributed.nn")):
        return Value(
            "tensor", op.told, tensor.shape if tensor else "", tensor.dtype if tensor else "", flags=frozenset({"told"})
        )
    return Value("work", f"work of {op.told}", ref=(op,)) if op.is_async else constant(None)


def _results(world: Evaluator, node: ast.Call, name: str, signature: Signature, tensor: Value | None, op: Op) -> None:
    """What the collective wrote into is the same on every rank from here on."""
    if tensor is None or name in ("barrier", "send", "isend", "reduce", "gather"):
        return
    place = signature.tensor if name in ("all_reduce", "broadcast") else ("tensor_list", "output_tensor", "output")[0]
    for i, one in enumerate(signature.order):
        if one == place and name in ("all_reduce", "broadcast"):
            target = (
                node.args[i] if i < len(node.args) else next((k.value for k in node.keywords if k.arg == one), None)
            )
            if isinstance(target, ast.Name):
                told = frozenset({"told"})
                world.env[target.id] = Value(
                    "tensor", op.told, shape_of(tensor), dtype_of(tensor), flags=told, make=tensor.make
                )
            elif isinstance(target, ast.Attribute):
                owner = world.value(target.value)
                if owner.kind == "object" and not world.quiet:
                    world.attrs[(owner.ref.name, target.attr)] = tensor._replace(
                        kind="tensor", fill="", flags=tensor.flags | {"told"}
                    )
                    world.writes.add(f"{owner.ref.name}.{target.attr}")
