"""Collectives in the order of a training step: work under way, losses, averages, barriers, threads (FSD216, 217, 221-223, 225)."""

from __future__ import annotations

import ast
from functools import lru_cache

from ..project import Definition, File, dotted_text
from ..records import Call
from ..torch_names import COLLECTIVES, short
from ..walk import Walker
from .collectives import group_given, group_text
from .common import around, is_true, last, place

_WAITS = ("wait", "is_completed", "get_future", "result")


def assigned(walker: Walker, node: ast.Assign) -> None:
    """``work = dist.all_reduce(x, async_op=True)``: until work.wait() nobody may touch x, or use another group."""
    value, target = node.value, node.targets[0]
    if not isinstance(value, ast.Call) or not isinstance(target, ast.Name) or len(node.targets) != 1:
        return
    name = short(walker.full(value.func))
    if name not in COLLECTIVES and name not in ("isend", "irecv"):
        return
    if name in COLLECTIVES and not any(one.arg == "async_op" and is_true(one.value) for one in value.keywords):
        return
    places = place(around(walker), node)
    if not places:
        return
    _, block, at = places[-1]
    for later in block[at + 1 :]:
        used = {inner.id for inner in ast.walk(later) if isinstance(inner, ast.Name)}
        other = (
            _other_group(walker, value, name, later) if target.id not in used or _is_collective(walker, later) else None
        )
        if other is not None:
            walker.report("FSD216", other, False, what=name, work=target.id)
            return
        if target.id in used:
            return  # waited for, or handed on
        touched = _touched(later, value, name)
        if touched is not None:
            walker.report("FSD217", touched, name != "isend" or _writes(later, value), work=target.id, what=name)
            return
        if isinstance(later, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return


def _is_collective(walker: Walker, node: ast.stmt) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and short(walker.full(value.func)) in COLLECTIVES


def _other_group(walker: Walker, work: ast.Call, name: str, later: ast.stmt) -> ast.Call | None:
    """A collective of another group in a later statement."""
    value = getattr(later, "value", None)
    if not isinstance(value, ast.Call) or name not in COLLECTIVES:
        return None
    other = short(walker.full(value.func))
    if other not in COLLECTIVES:
        return None
    texts = [
        group_text(walker, group_given(Call(one, called, "", (), "", (), {})))
        for one, called in ((work, name), (value, other))
    ]
    return value if texts[0] != texts[1] else None


def _touched(later: ast.stmt, work: ast.Call, name: str) -> ast.AST | None:
    """Where a statement uses the tensor of a collective that is under way."""
    tensors = {argument.id for argument in work.args[:1] if isinstance(argument, ast.Name)}
    if name == "gather":
        return None  # what comes first is only read
    if isinstance(later, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    if isinstance(later, ast.Assign) and _rebinds(later, *tensors) and not any(_loads(later.value, t) for t in tensors):
        return None  # the name gets another tensor
    if name == "isend":
        return later if _writes(later, work) else None
    return later if any(_loads(later, one) for one in tensors) else None


def _writes(later: ast.stmt, work: ast.Call) -> bool:
    """Whether a statement changes the tensor in place."""
    names = {argument.id for argument in work.args[:1] if isinstance(argument, ast.Name)}
    for inner in ast.walk(later):
        changed: ast.expr | None = None
        if isinstance(inner, ast.AugAssign):
            changed = inner.target
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            in_place = inner.func.attr.endswith("_") and not inner.func.attr.endswith("__")
            changed = inner.func.value if in_place else None
        elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Subscript):
            changed = inner.targets[0].value
        if isinstance(changed, ast.Name) and changed.id in names:
            return True
    return False


def _loads(node: ast.AST, name: str) -> bool:
    """Whether a tensor's contents are used; its shape and the like may be asked for."""
    quiet: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in ("shape", "dtype", "device", "size", "numel", "ndim"):
            quiet.add(id(inner.value))
    return any(isinstance(one, ast.Name) and one.id == name and id(one) not in quiet for one in ast.walk(node))


def reduced(walker: Walker, call: Call) -> None:
    """all_reduce of a loss before its backward, and of what is averaged twice."""
    given = call.node.args[0] if call.node.args else call.argument("tensor")
    if not isinstance(given, ast.Name) or call.spread():
        return
    places = place(around(walker), call.node)
    if not places:
        return
    _, block, at = places[-1]
    averages = last(walker, call.argument("op", 1)) == "AVG"
    before = any(_divides(one, given.id) for one in block[:at])
    divided = any(_divides(one, given.id) for one in block[at + 1 :])
    for later in block[at + 1 :]:
        if _divides(later, given.id):
            if averages or before:
                # The number of ranks of another group may be meant.
                walker.report(
                    "FSD222",
                    later,
                    call.argument("group", 2) is None and _divides(later, given.id, True),
                    what=given.id,
                )
            break
        if _rebinds(later, given.id):
            break
    if given.id not in _run_back(walker.frame.file):
        return
    for holder, outer, index in reversed(places):
        for later in outer[index + 1 :]:
            if _rebinds(later, given.id) and not _divides(later, given.id):
                return
            for inner in ast.walk(later):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    function = inner.func
                    if function.attr == "backward" and dotted_text(function.value) == given.id:
                        walker.report("FSD221", call.node, divided, what=given.id)
                        return
        if isinstance(holder, (ast.For, ast.While, ast.FunctionDef)):
            return


@lru_cache(16)
def _run_back(file: File) -> frozenset[str]:
    """The names whose backward a file calls."""
    calls = (call.func for call in file.survey.kept[ast.Call] if isinstance(call, ast.Call))
    return frozenset(
        dotted_text(function.value)
        for function in calls
        if isinstance(function, ast.Attribute) and function.attr == "backward"
    )


def _rebinds(node: ast.stmt, *names: str) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id in names for one in node.targets)


def _divides(node: ast.stmt, name: str, of_all: bool = False) -> bool:
    """Whether a statement divides a tensor by a number of ranks; ``of_all``: of all ranks, by its name."""
    divisor: ast.AST | None = None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and dotted_text(node.target) == name:
        divisor = node.value
    elif isinstance(node, ast.Assign) and _rebinds(node, name) and isinstance(node.value, ast.BinOp):
        if isinstance(node.value.op, ast.Div) and dotted_text(node.value.left) == name:
            divisor = node.value.right
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr == "div_" and dotted_text(function.value) == name:
            divisor = node.value.args[0] if node.value.args else None
    if divisor is None:
        return False
    text = dotted_text(divisor.func if isinstance(divisor, ast.Call) else divisor).rpartition(".")[2].lower()
    if of_all:
        plain = not isinstance(divisor, ast.Call) or not (divisor.args or divisor.keywords)
        return plain and text in ("world_size", "get_world_size", "world", "ws")
    return "world_size" in text or text in ("world", "ws", "nproc", "num_ranks", "n_ranks")


def barrier(walker: Walker, call: Call) -> None:
    """A barrier in every training step."""
    found = place(around(walker), call.node)
    inner = next((i for i in range(len(found) - 1, -1, -1) if isinstance(found[i][0], (ast.For, ast.While))), -1)
    if inner < 0 or inner != len(found) - 1:
        return  # not in a loop, or under a test in it
    steps = {
        function.func.attr
        for statement in found[inner][1]
        if not isinstance(statement, (ast.For, ast.While))  # else it is an epoch that the barrier is in
        for function in ast.walk(statement)
        if isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute)
    }
    if {"backward", "step"} <= steps:
        walker.report("FSD223", call.node, False)


def thread(walker: Walker, call: Call) -> None:
    """A thread whose function calls collectives."""
    target = call.argument("target", 1) or call.argument("function", 1)
    text = dotted_text(target) if target is not None else ""
    things = walker.peek(target) if target is not None and text else ()
    found = walker.project.resolve(walker.frame.file, text) if text else ""
    node = found.node if isinstance(found, Definition) else next((t.node for t in things if t.kind == "function"), None)
    file = found.file if isinstance(found, Definition) else walker.frame.file
    for inner in ast.walk(node) if node is not None else ():
        if isinstance(inner, ast.Call):
            full = walker.project.resolve(file, dotted_text(inner.func)) if dotted_text(inner.func) else ""
            name = short(full) if isinstance(full, str) else ""
            if name in COLLECTIVES:  # FSD118 speaks of groups that are made
                own = isinstance(inner, ast.Call) and any(one.arg == "group" for one in inner.keywords)
                if not own:
                    walker.report("FSD225", call.node, False, what=name, target=text)
                return


CALLS = {"all_reduce": [reduced], "barrier": [barrier], "Thread": [thread]}
ASSIGNED = [assigned]
