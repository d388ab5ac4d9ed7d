"""What a test says: whether its answer differs over the ranks, asks what an object is, or is any other."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple

from .project import dotted_text
from .records import Condition

if TYPE_CHECKING:
    from .walk import Walker

# Called so by everybody; that it is the rank is still not certain.
_MAIN = frozenset(
    [
        "is_main_process",
        "is_local_main_process",
        "is_rank_zero",
        "is_rank_0",
        "is_rank0",
        "is_master",
        "is_master_process",
        "is_global_zero",
        "is_world_process_zero",
        "is_local_process_zero",
        "is_main",
        "is_primary",
        "is_chief",
        "master_process",
        "main_process",
        "is_leader",
    ]
)
_GUARDS = frozenset({"isinstance", "issubclass", "hasattr", "callable", "getattr", "type"})
_RELEASE = ("version", "Version", "is_available", "parse_version", "is_torch_version", "is_fsdp")


_LOCAL = frozenset({"isnan", "isinf", "isfinite", "item"})


class Test(NamedTuple):
    """The conditions of both branches."""

    holds: tuple[Condition, ...]
    fails: tuple[Condition, ...]
    never: bool = False  # if False, if TYPE_CHECKING, a flag that the caller left off
    always: bool = False  # a flag that the caller set


def of_test(walker: Walker, node: ast.expr) -> Test:
    """What an if says about where its branches are reached."""
    if (isinstance(node, ast.Constant) and not node.value) or dotted_text(node).endswith("TYPE_CHECKING"):
        return Test((), (), True, False)
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "__name__":
        return Test((), (), False, True)
    rank = rank_test(walker, node)
    if rank is not None:
        return Test((rank,), (_turned(rank),), False, False)
    own = f"{walker.frame.number}:{id(node)}"
    if isinstance(node, ast.BoolOp):
        inner = [found for part in node.values if (found := rank_test(walker, part)) is not None]
        kind = about(walker, node)
        kind = "" if kind == "local" and inner else kind
        yes, no = Condition(own, True, kind, True), Condition(own, False, kind, True)
        if isinstance(node.op, ast.And):
            return Test((*inner, yes), (no,), False, False)
        return Test((yes,), (*(_turned(one) for one in inner), no), False, False)
    kind = about(walker, node)
    if kind:
        return Test((Condition(own, True, kind, True),), (Condition(own, False, kind, True),), False, False)
    arm = True
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node, arm = node.operand, not arm
    if isinstance(node, ast.Name):
        flags = walker.peek(node)
        if len(flags) == 1 and flags[0].kind == "constant":
            holds = (flags[0].name == "True") is arm
            return Test((), (), not holds, holds)
    text = dotted_text(node)
    key = f"{walker.frame.number}:{text}" if text else own
    return Test((Condition(key, arm, "", True),), (Condition(key, not arm, "", True),), False, False)


def _turned(one: Condition) -> Condition:
    return Condition(one.key, not one.arm, one.kind, one.sure)


def about(walker: Walker, node: ast.expr) -> str:
    """What a test asks: "guard" (the type of an object, the release, what is installed), "local" (this rank's data) or "".

    This rank's data are numbers that each rank works out on its own: torch.isnan(loss), loss.item() > 10.
    """
    if isinstance(node, ast.Name) and "version" not in node.id.lower():
        return "guard" if node.id in _GUARDS else ""
    known = walker.tests.get(node)
    if known is None:
        known = walker.tests[node] = _about(walker, node)
    return known


def _about(walker: Walker, node: ast.expr) -> str:
    losses = local = False
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            if inner.id in _GUARDS or "version" in inner.id.lower():
                return "guard"
            losses = losses or "loss" in inner.id
        elif isinstance(inner, ast.Attribute):
            if inner.attr in _RELEASE or "version" in inner.attr.lower():
                return "guard"
        elif isinstance(inner, ast.Call):
            function = inner.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            local = local or (name in _LOCAL and (name != "item" or "loss" in ast.dump(function)))
    if losses and not local and isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
        written = walker.frame.written.get(node.left.id)  # value = loss.item(); if value > worst
        local = (
            isinstance(written, ast.Call) and isinstance(written.func, ast.Attribute) and written.func.attr == "item"
        )
    return "local" if local else ""


def rank_test(walker: Walker, node: ast.expr) -> Condition | None:
    """The condition of a test whose answer differs over the ranks; None for any other."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found = rank_test(walker, node.operand)
        return _turned(found) if found is not None else None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(walker, node)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
        for thing in walker.peek(node):
            if thing.kind == "rank_test":
                return Condition(thing.name, thing.attrs.get("fails") is None, "rank", thing.sure)
            if thing.kind in ("rank", "local_rank"):
                return Condition(f"{thing.kind} == 0", False, "rank", thing.sure)
        text = dotted_text(node.func if isinstance(node, ast.Call) else node)
        if text.rpartition(".")[2].lstrip("_") in _MAIN:
            local = "local_" if "local" in text else ""
            return Condition(f"{local}rank == 0", True, "rank", False)
    return None


def _compared(walker: Walker, node: ast.Compare) -> Condition | None:
    left, right, op = node.left, node.comparators[0], node.ops[0]
    if isinstance(left, ast.Constant):
        left, right = right, left
        op = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}.get(type(op), type(op))()
    things = [thing for thing in walker.peek(left) if thing.kind in ("rank", "local_rank")]
    if not things:
        return None
    kind, sure = things[0].kind, things[0].sure
    number = right.value if isinstance(right, ast.Constant) and isinstance(right.value, int) else None
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple, ast.Set)):
        # rank not in (-1, 0): as rank != 0, since below 0 there are no ranks
        ranks = [one.value for one in right.elts if isinstance(one, ast.Constant) and isinstance(one.value, int)]
        signed = [one for one in right.elts if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub)]
        if len(ranks) == 1 and len(ranks) + len(signed) == len(right.elts):
            return Condition(f"{kind} == {ranks[0]}", isinstance(op, ast.In), "rank", sure)
    if isinstance(right, ast.UnaryOp) and isinstance(right.op, ast.USub):
        return None  # rank == -1: not distributed at all
    if isinstance(op, (ast.Eq, ast.NotEq)) and number is not None and number >= 0:
        return Condition(f"{kind} == {number}", isinstance(op, ast.Eq), "rank", sure)
    if isinstance(op, ast.Gt) and number == 0:
        return Condition(f"{kind} == 0", False, "rank", sure)
    if isinstance(op, (ast.Lt, ast.GtE)) and number == 1:
        return Condition(f"{kind} == 0", isinstance(op, ast.Lt), "rank", sure)
    if isinstance(op, ast.Lt) and number == 0:
        return None  # not distributed at all
    if isinstance(op, (ast.Is, ast.IsNot, ast.Gt, ast.GtE)):
        return None  # rank is None, rank >= 0, rank > -1: whether there are ranks at all
    return Condition(f"{kind} {walker.source(node)}", True, "rank", sure)
