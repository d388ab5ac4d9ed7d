"""Collectives: work that nobody waits for, results that are none, lists of one tensor (FSD2xx)."""

from __future__ import annotations

import ast

from ..records import Call, Things
from ..torch_names import COLLECTIVES, short
from ..walk import Walker
from .common import constant, is_true, kind_of, replace

# The position of the parameter group.
_GROUP_AT = {
    "barrier": 0,
    "monitored_barrier": 0,
    "all_reduce": 2,
    "reduce": 3,
    "broadcast": 2,
    "broadcast_object_list": 2,
    "all_gather": 2,
    "all_gather_object": 2,
    "all_gather_into_tensor": 2,
    "all_gather_single": 2,
    "gather": 3,
    "gather_object": 3,
    "scatter": 3,
    "scatter_object_list": 3,
    "reduce_scatter": 3,
    "reduce_scatter_tensor": 3,
    "reduce_scatter_single": 3,
    "all_to_all": 2,
    "all_to_all_single": 4,
}
_BY_HAND = {"isend", "irecv"}


def collective(walker: Walker, call: Call) -> None:
    """Every collective is an event; of a group of its own only the members must call it."""
    if call.name not in ("all_gather_coalesced",) and _default_group(call):
        walker.event("FSD201", call.name, call.node)
        for condition in walker.path:
            if condition.kind == "except":
                walker.report("FSD202", call.node, False, what=call.name)
                break


def _default_group(call: Call) -> bool:
    given = call.argument("group")
    if given is None and len(call.node.args) > _GROUP_AT.get(call.name, 99):
        given = call.node.args[_GROUP_AT[call.name]]
    if call.spread():
        return False
    return given is None or (isinstance(given, ast.Constant) and given.value is None)


def dropped(walker: Walker, node: ast.Call, things: Things) -> None:
    """Asynchronous work whose handle nobody keeps."""
    name = short(walker.full(node.func))
    if name in COLLECTIVES:
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "async_op"), None)
        if is_true(given):
            walker.report("FSD203", node, True, what=name)
    elif name in _BY_HAND:
        walker.report("FSD203", node, True, what=name)


def gathered(walker: Walker, call: Call) -> None:
    """all_gather into a list that holds one tensor many times."""
    given = call.argument("tensor_list", 0)
    if isinstance(given, ast.Name):
        given = walker.written(given)
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult):
        left, right = given.left, given.right
        if isinstance(right, ast.List):
            left, right = right, left
        if isinstance(left, ast.List) and len(left.elts) == 1 and isinstance(left.elts[0], ast.Call):
            walker.report("FSD204", call.node, True)


def assigned(walker: Walker, node: ast.Assign) -> None:
    """``x = dist.all_reduce(x)``: a synchronous collective returns None."""
    value = node.value
    if not isinstance(value, ast.Call) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return
    name = short(walker.full(value.func))
    if name not in ("all_reduce", "broadcast", "reduce", "all_gather") or not value.args:
        return
    if any(keyword.arg in ("async_op", None) for keyword in value.keywords):
        return
    first = value.args[0]
    if isinstance(first, ast.Name) and first.id == node.targets[0].id:
        walker.report("FSD205", node, True, *replace(node, walker.source(value)), what=name)


def monitored(walker: Walker, call: Call) -> None:
    """monitored_barrier on an NCCL group."""
    if _default_group(call) and walker.facts.get("nccl only") and not walker.facts.get("other backend"):
        walker.report("FSD207", call.node, False)


def model_called(walker: Walker, call: Call) -> None:
    """A sharded model's forward gathers: every rank must run it."""
    for kind in ("fsdp1", "fsdp2"):
        if kind_of(call.owner, kind, walker) == "yes":
            walker.event("FSD206", "the forward of a sharded model", call.node)
            return


def full_tensor(walker: Walker, call: Call) -> None:
    """DTensor.full_tensor gathers."""
    if not call.node.args:
        walker.event("FSD208", "full_tensor()", call.node, bool(call.owner))


def group_rank_source(walker: Walker, call: Call) -> None:
    """Several collectives take the source's global rank, whatever the group."""
    given = call.argument("src", 1)
    if given is not None and constant(given) is None and isinstance(given, ast.Call):
        function = given.func
        name = short(walker.full(function))
        if name == "get_rank" and (given.args or given.keywords):
            walker.report("FSD209", call.node, False)


CALLS = {name: [collective] for name in sorted(COLLECTIVES)}
CALLS["all_gather"] = [collective, gathered]
CALLS["monitored_barrier"] = [collective, monitored]
CALLS["broadcast"] = [collective, group_rank_source]
METHODS = {"()": [model_called], "full_tensor": [full_tensor]}
DROPPED = [dropped]
ASSIGNED = [assigned]
