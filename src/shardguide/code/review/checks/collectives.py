"""Collectives: work that nobody waits for, results that are none, lists of one tensor (FSD2xx)."""

from __future__ import annotations

import ast

from ..project import dotted_text
from ..records import Call, Things
from ..torch_names import COLLECTIVES, short
from ..walk import Walker
from .common import around, assigned_once, constant, is_false, is_true, kind_of, of_rank, place, replace
from .groups import of_some

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


# The position of the source or destination, which is a rank of the whole job.
_END_AT = {
    "broadcast": ("src", 1),
    "broadcast_object_list": ("src", 1),
    "scatter": ("src", 2),
    "scatter_object_list": ("src", 2),
    "reduce": ("dst", 1),
    "gather": ("dst", 2),
    "gather_object": ("dst", 2),
}


def collective(walker: Walker, call: Call) -> None:
    """Every collective is an event; of a group of its own only the members must call it."""
    if call.name == "all_gather_coalesced" or call.spread():
        return
    given = group_given(call)
    group = group_text(walker, given)
    mode = "async" if is_true(call.argument("async_op")) else ""
    if group:
        walker.event("", call.name, call.node, group=group, mode=mode)
        if given is not None:
            _member(walker, call, given)
        return
    walker.event("FSD201", call.name, call.node, mode=mode)
    for at, condition in enumerate(walker.path):
        if condition.kind == "except":
            if walker.path[at + 1 :]:
                break  # another test decides too
            walker.report("FSD202", call.node, False, what=call.name)
            break


def group_given(call: Call) -> ast.expr | None:
    """The expression for the process group of a collective."""
    given = call.argument("group")
    if given is None and len(call.node.args) > _GROUP_AT.get(call.name, 99):
        given = call.node.args[_GROUP_AT[call.name]]
    return given


def group_text(walker: Walker, given: ast.expr | None) -> str:
    """A process group as written; "" for the default group."""
    if given is None or (isinstance(given, ast.Constant) and given.value is None):
        return ""
    if walker.full(given).endswith(("group.WORLD", "GroupMember.WORLD")):
        return ""
    return dotted_text(given) or walker.source(given)


def _default_group(call: Call) -> bool:
    given = group_given(call)
    return not call.spread() and (given is None or (isinstance(given, ast.Constant) and given.value is None))


def _member(walker: Walker, call: Call, group: ast.expr) -> None:
    """The source and the destination are ranks of the whole job, and of one that is in the group."""
    name, at = _END_AT.get(call.name, ("", -1))
    end = constant(call.argument(name, at)) if name else None
    if not isinstance(end, int) or isinstance(end, bool):
        return
    if isinstance(group, ast.Name) and _turn(walker, call, group.id):
        walker.report("FSD214", call.node, False, name=name, end=str(end), what=call.name)
        return
    made = assigned_once(walker, group)
    if isinstance(made, ast.Subscript) and of_rank(walker, made.slice) is not None:
        walker.report("FSD214", call.node, False, name=name, end=str(end), what=call.name)
        return
    if not isinstance(made, ast.Call):
        return
    if short(walker.full(made.func)) == "new_group":
        ranks = next((one.value for one in made.keywords if one.arg == "ranks"), made.args[0] if made.args else None)
        members = _numbers(assigned_once(walker, ranks))
        if members and end not in members:
            walker.report("FSD214", call.node, True, name=name, end=str(end), what=call.name)
        return
    mesh = made.func.value if isinstance(made.func, ast.Attribute) and made.func.attr == "get_group" else None
    part = bool(made.args) or isinstance(mesh, ast.Subscript)  # one dimension of several
    if mesh is not None and part and any(thing.kind == "mesh" for thing in walker.peek(mesh)):
        walker.report("FSD214", call.node, False, name=name, end=str(end), what=call.name)


def _turn(walker: Walker, call: Call, name: str) -> bool:
    """Whether a name stands for one group after the other: for group in groups."""
    return any(
        isinstance(holder, ast.For)
        and any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(holder.target))
        for holder, _, _ in place(around(walker), call.node)
    )


def _numbers(node: ast.expr | None) -> set[int]:
    """The numbers of a list that is written out, or of a range of numbers."""
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [constant(element) for element in node.elts]
        return {value for value in values if isinstance(value, int)} if all(type(v) is int for v in values) else set()
    if isinstance(node, ast.Call) and dotted_text(node.func) == "list" and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Call) and dotted_text(node.func) == "range":
        numbers = [one.value for one in node.args if isinstance(one, ast.Constant) and type(one.value) is int]
        if 0 < len(numbers) == len(node.args) < 3 and all(abs(number) < 4096 for number in numbers):
            return set(range(*numbers))
    return set()


def new_group(walker: Walker, call: Call) -> None:
    """A group with ranks that are worked out from one's own rank: the lists differ."""
    ranks = call.argument("ranks", 0)
    if isinstance(ranks, ast.List) and len(ranks.elts) == 1:
        return  # each its own, in which it meets nobody: that works (run on 2.13.0)
    local = call.argument("use_local_synchronization", 4)
    if ranks is None or call.spread() or (local is not None and not is_false(local)):
        return
    rank = of_rank(walker, ranks)
    if rank is not None and not any(one.kind == "rank" for one in walker.path):
        walker.report("FSD226", call.node, rank.sure)


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
    """A sharded model's forward gathers: every rank must run it. DDP's backward communicates."""
    for kind in ("fsdp1", "fsdp2"):
        if kind_of(call.owner, kind, walker) == "yes":
            walker.note("parallel", call.node)
            walker.event("FSD206", "the forward of a sharded model", call.node)
            return
    if kind_of(call.owner, "ddp", walker) == "yes":
        walker.note("parallel", call.node)


def backward(walker: Walker, call: Call) -> None:
    """The backward of a loss where a parallel model was run: every rank must."""
    if _of_plain(walker, call):
        return
    if walker.noted("parallel") and not walker.inside("no_sync") and not of_some(walker):
        walker.event("FSD206", "the backward of a parallel model", call.node, sure=False)


def _of_plain(walker: Walker, call: Call) -> bool:
    """Whether a loss is what a model gave that nothing wraps."""
    function = call.node.func
    made = assigned_once(walker, function.value) if isinstance(function, ast.Attribute) else None
    models = walker.peek(made.func) if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) else ()
    wrapped = {id(inner) for one in walker.made if one.kind in ("ddp", "fsdp1") for inner in one.of}
    return bool(models) and all(
        one.kind == "module"
        and id(one) not in wrapped
        and not any(mark.what in ("fully_shard", "escaped") for mark in one.marks)
        for one in models
    )


def full_tensor(walker: Walker, call: Call) -> None:
    """DTensor.full_tensor gathers."""
    if not call.node.args:
        walker.event("FSD208", "full_tensor()", call.node, bool(call.owner))


def unshard(walker: Walker, call: Call) -> None:
    """The unshard of an FSDP2 module gathers."""
    if call.owner:
        sure = kind_of(call.owner, "fsdp2", walker) == "yes"
        walker.event("FSD208", "unshard()", call.node, sure)


def of_library(walker: Walker, call: Call) -> None:
    """The barrier of accelerate and of Lightning Fabric."""
    if call.owner and (call.method == "wait_for_everyone" or "fabric" in dotted_text(call.node.func).lower()):
        walker.event("FSD201", f"{call.method}()", call.node, sure=False)


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
CALLS["new_group"] = [new_group]
METHODS = {
    "()": [model_called],
    "backward": [backward],
    "full_tensor": [full_tensor],
    "unshard": [unshard],
    "barrier": [of_library],
    "wait_for_everyone": [of_library],
}
DROPPED = [dropped]
ASSIGNED = [assigned]
