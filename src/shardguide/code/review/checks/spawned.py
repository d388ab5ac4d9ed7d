"""Processes that the program starts itself: what torch.multiprocessing.spawn hands over (FSD128, 129, 136)."""

from __future__ import annotations

import ast

from ..project import Definition, File, dotted_text
from ..records import Call
from ..walk import Walker
from .literals import bound, number

_DEPTH = 2
_NUMBERS = ("torch.cuda.device_count", "torch.accelerator.device_count")
Known = dict[str, "ast.expr | str"]  # parameters: the constant that is handed over, or "index"


def started(walker: Walker, call: Call) -> None:
    """spawn(fn, args, nprocs)."""
    walker.fact("spawn", call.node)
    target = _target(walker, walker.frame.file, call.node)
    args = call.argument("args", 1)
    if target is None or call.spread():
        return
    node = target.node
    assert not isinstance(node, ast.ClassDef)
    given = bound(walker, args)
    if given is not None and not isinstance(given, (ast.Tuple, ast.List)):
        plain = isinstance(given, ast.Constant) and not isinstance(given.value, str)
        if plain or (isinstance(given, ast.Call) and walker.full(given.func) in _NUMBERS):
            walker.report("FSD136", call.node, True, why="args is no tuple: one value needs a comma, (value,)")
        return
    values = list(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else []
    if any(isinstance(value, ast.Starred) for value in values):
        return
    places = [*node.args.posonlyargs, *node.args.args]
    needed = len(places) - len(node.args.defaults)
    count = 1 + len(values)
    if count < needed or (count > len(places) and node.args.vararg is None):
        wants = f"{node.name}() takes {len(places)} arguments"
        if needed < len(places):
            wants = f"{node.name}() takes {needed} to {len(places)} arguments"
        walker.report("FSD136", call.node, True, why=f"{wants}, and gets {count}: the process's index and args")
        return
    known: Known = {one.arg: value for one, value in zip(places[1:], values, strict=False)}
    if places:  # else def main(*args)
        known[places[0].arg] = "index"
    for name, value in known.items():
        if not isinstance(value, str):
            resolved = bound(walker, value)
            if isinstance(resolved, ast.Constant):
                known[name] = resolved
    count_ = number(walker, call.argument("nprocs", 2))
    _body(walker, target.file, node, known, int(count_) if count_ is not None else None, _DEPTH)


def _target(walker: Walker, file: File, node: ast.Call) -> Definition | None:
    given = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "fn"), None)
    if given is None or not dotted_text(given):
        return None
    found = walker.project.resolve(file, dotted_text(given))
    if isinstance(found, Definition) and not isinstance(found.node, ast.ClassDef) and found.owner is None:
        return found
    return None


def _body(walker: Walker, file: File, node: ast.AST, known: Known, count: int | None, depth: int) -> None:
    """What a started function does with its index and the size of the world, one or two calls deep."""
    apart = {id(inner) for test in ast.walk(node) if isinstance(test, ast.If) for inner in ast.walk(test)}
    for inner in ast.walk(node):
        if id(inner) in apart:
            continue  # for some of the processes only, perhaps
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Subscript):
            target = inner.targets[0]
            if _full(walker, file, target.value) == "os.environ" and isinstance(target.slice, ast.Constant):
                _environment(walker, file, str(target.slice.value), inner, known, count)
        elif isinstance(inner, ast.Call):
            full = _full(walker, file, inner.func)
            if full.endswith(".init_process_group") and full.startswith("torch.distributed."):
                _initialised(walker, file, inner, known, count)
            elif depth and dotted_text(inner.func):
                found = walker.project.resolve(file, dotted_text(inner.func))
                if not isinstance(found, Definition) or found.owner is not None or found.node is node:
                    continue
                if not isinstance(found.node, ast.ClassDef):
                    passed = _passed(found.node, inner, known)
                    _body(walker, found.file, found.node, passed, count, depth - 1)


def _full(walker: Walker, file: File, node: ast.AST) -> str:
    name = dotted_text(node)
    found = walker.project.resolve(file, name) if name else ""
    return found if isinstance(found, str) else ""


def _passed(node: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call, known: Known) -> Known:
    places = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    out: Known = {}
    pairs = [*zip(places, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    for name, value in pairs:
        if isinstance(value, ast.Constant):
            out[name] = value
        elif isinstance(value, ast.Name) and value.id in known:
            out[name] = known[value.id]
    return out


def _number(node: ast.expr | None, known: Known) -> int | str | None:
    """A number that is written out or handed over; "index" for the number of the process."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "int") and node.args:
        node = node.args[0]
    found = known.get(node.id) if isinstance(node, ast.Name) else node
    if isinstance(found, str):
        return found
    value = found.value if isinstance(found, ast.Constant) else None
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _environment(walker: Walker, file: File, name: str, node: ast.Assign, known: Known, count: int | None) -> None:
    value = _number(node.value, known)
    if name == "RANK" and isinstance(value, int) and count != 1:
        walker.report_at("FSD128", file, node, True, rank=str(value))
    elif name == "WORLD_SIZE" and isinstance(value, int):
        _sizes(walker, file, node, value, count, True)


def _initialised(walker: Walker, file: File, node: ast.Call, known: Known, count: int | None) -> None:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    rank = _number(given.get("rank") or (node.args[4] if len(node.args) > 4 else None), known)
    world = _number(given.get("world_size") or (node.args[3] if len(node.args) > 3 else None), known)
    if isinstance(rank, int) and rank >= 0 and count != 1:
        walker.report_at("FSD128", file, node, True, rank=str(rank))
    if isinstance(world, int) and world > 0:
        _sizes(walker, file, node, world, count, rank == "index")


def _sizes(walker: Walker, file: File, node: ast.AST, world: int, count: int | None, one_machine: bool) -> None:
    """A world smaller than the processes started is wrong; a larger one may be that of several machines."""
    if count is None or world == count:
        return
    sure = world < count or world % count != 0
    if sure or one_machine:
        walker.report_at("FSD129", file, node, sure, world=str(world), count=str(count))


CALLS = {"spawn": [started]}
