"""Arithmetic of the user's own over the parameters of a converted model, whose result goes to a collective."""

from __future__ import annotations

import ast

from .unit import Unit

_COLLECTIVES = ("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "broadcast", "reduce_scatter_tensor")
_READ = ("parameters", "named_parameters")
_CONTAINERS = ("dict", "list", "tuple", "set", "filter", "OrderedDict")


def look(unit: Unit) -> None:
    """Ask for a look at what the code does with a converted model's parameters by itself."""
    _collectives(unit)
    _updates(unit)


def _updates(unit: Unit) -> None:
    """Parameters that are changed in place, where a forward without backward may have come before."""
    if not any(word in unit.near for word in ("no_grad", "inference_mode")):
        return
    for function in ast.walk(unit.file.tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not any(isinstance(one, ast.Attribute) and one.attr in _READ for one in ast.walk(function)):
            continue
        tainted = _tainted(unit, function)
        changed = next((one for one in ast.walk(function) if _changes(unit, one, tainted)), None) if tainted else None
        if changed is not None:
            unit.todo(changed, "own-updates")


def _changes(unit: Unit, node: ast.AST, tainted: set[str]) -> bool:
    """Whether a node changes a tensor in place that is, or was made of, a parameter."""
    if isinstance(node, ast.Assign):
        return any(
            isinstance(to, ast.Attribute) and to.attr == "data" and _names(to.value) & tainted for to in node.targets
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    name, owner = node.func.attr, node.func.value
    if unit.full(node.func).startswith("torch._foreach_") and name.endswith("_"):
        return bool(node.args) and bool(_names(node.args[0]) & tainted)
    if not name.endswith("_") or name.endswith("__") or name in ("requires_grad_", "register_"):
        return False
    graded = any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in ast.walk(owner))
    return not graded and not unit.full(owner) and bool(_names(owner) & tainted)


def _collectives(unit: Unit) -> None:
    """Collectives that are given what was computed from a converted model's parameters."""
    if not any(word in unit.file.text for word in _COLLECTIVES):
        return
    for function in ast.walk(unit.file.tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        calls = [
            one
            for one in ast.walk(function)
            if isinstance(one, ast.Call)
            and one.args
            and unit.full(one.func).startswith("torch.distributed.")
            and unit.full(one.func).rpartition(".")[2] in _COLLECTIVES
        ]
        tainted = _tainted(unit, function) if calls else set()
        for call in calls:
            if _names(call.args[0]) & tainted:
                unit.todo(call, "own-arithmetic")


def _tainted(unit: Unit, function: ast.AST) -> set[str]:
    """The names that hold parameters, or what was made of them."""
    out: set[str] = set()
    while True:
        before = len(out)
        for node in ast.walk(function):
            if isinstance(node, (ast.For, ast.comprehension)) and (_over(unit, node.iter) or _names(node.iter) & out):
                out |= _names(node.target)
            elif isinstance(node, ast.Assign) and (_holds(unit, node.value, out) or _kept(unit, node.value)):
                for target in node.targets:
                    out |= _names(target)
            elif isinstance(node, ast.AugAssign) and _holds(unit, node.value, out):
                out |= _names(node.target)
        if len(out) == before:
            return out


def _kept(unit: Unit, node: ast.expr) -> bool:
    """Whether an expression is the parameters themselves, in a container."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONTAINERS:
        return any(_kept(unit, one) for one in node.args)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _over(unit, node)


def _over(unit: Unit, node: ast.expr) -> bool:
    """Whether an iterable goes over the parameters of a model that was converted, or may have been."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _READ:
            owner = one.func.value
            if unit.is_fsdp1(owner) or (not unit.reading.things(owner) and _all_converted(unit)):
                return True
    return False


def _all_converted(unit: Unit) -> bool:
    codes = unit.constructors.get(unit.group, ())
    return not unit.beside and bool(codes) and not any(codes)


def _holds(unit: Unit, node: ast.expr, tainted: set[str]) -> bool:
    return bool(_names(node) & tainted) and not _only_optimizer(unit, node)


def _only_optimizer(unit: Unit, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and unit.full(node.func).startswith("torch.optim.")


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
