"""Which device a process takes: by its global rank, or the same one for all (FSD101, FSD127)."""

from __future__ import annotations

import ast

from ..records import Call, implied
from ..walk import Walker
from .common import constant
from .init_arguments import rank_of
from .literals import bound
from .parts import in_tests

_SET = "a device for all"
_RANK = "a device by the rank"


def _by_rank(walker: Walker, node: ast.AST) -> None:
    """Once for each function: the first place is where the device comes from."""
    here = walker.stack[-1] if walker.stack else walker.frame.file.tree
    if not in_tests(walker.frame.file) and not any(mark.what == _RANK and mark.node is here for mark in walker.marks):
        walker.note(_RANK, here)
        walker.report("FSD101", node, False)


def chosen(walker: Walker, call: Call) -> None:
    """set_device(device)."""
    if _fixed(walker, call.argument("device", 0)):
        walker.note(_SET, call.node)
    if rank_of(call.args[0] if call.args else ()):
        walker.note(_RANK, walker.stack[-1] if walker.stack else walker.frame.file.tree)  # groups.py says it


def device(walker: Walker, call: Call) -> None:
    """torch.device("cuda", rank) and torch.device(f"cuda:{rank}")."""
    given = [call.things("index", 1), call.args[0] if call.args else ()]
    if len(call.node.args) > 1 or isinstance(bound(walker, call.argument("device", 0)), ast.JoinedStr):
        walker.fact("device", call.node)  # a process's own, whatever the number is called
    if any(rank_of(things) for things in given) or _in_text(walker, call.argument("device", 0)):
        _by_rank(walker, call.node)


def moved(walker: Walker, call: Call) -> None:
    """model.to(rank), model.cuda(rank), backend.set_device(rank)."""
    if call.args and any(thing.kind in ("rank", "local_rank") for thing in call.args[0]):
        walker.fact("device", call.node)
    if call.args and (rank_of(call.args[0]) or _in_text(walker, call.node.args[0])):
        _by_rank(walker, call.node)


def wrapped(walker: Walker, call: Call) -> None:
    """DDP(model, device_ids=[…])."""
    ids = call.argument("device_ids", 1)
    if not isinstance(ids, (ast.List, ast.Tuple)) or len(ids.elts) != 1:
        return
    if constant(ids.elts[0]) is None:
        walker.fact("device", call.node)
    if rank_of(walker.peek(ids.elts[0])):
        _by_rank(walker, call.node)
    if _fixed(walker, ids.elts[0]):
        walker.note(_SET, call.node)


def initialised(walker: Walker, call: Call) -> None:
    """init_process_group(device_id=…)."""
    if _fixed(walker, call.argument("device_id", 8)):
        walker.note(_SET, call.node)


def _in_text(walker: Walker, node: ast.expr | None) -> bool:
    """f"cuda:{rank}"."""
    source = bound(walker, node)
    if not isinstance(source, ast.JoinedStr):
        return False
    return any(isinstance(part, ast.FormattedValue) and rank_of(walker.peek(part.value)) for part in source.values)


def _fixed(walker: Walker, node: ast.expr | None) -> bool:
    """Whether a device is written out: 0, "cuda:0", torch.device("cuda:0"), torch.device("cuda", 0)."""
    source = bound(walker, node)
    value = constant(source)
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return True
    if isinstance(value, str):
        return value.startswith(("cuda:", "xpu:")) and value[-1:].isdigit()
    if isinstance(source, ast.Call) and walker.full(source.func) == "torch.device" and source.args:
        if len(source.args) == 2:
            return isinstance(constant(source.args[1]), int)
        return _fixed(walker, source.args[0]) and isinstance(constant(source.args[0]), str)
    return False


def alone(node: ast.AST) -> bool:
    """Whether a group is one for a single process: the fake backend, or a world of one."""
    if not isinstance(node, ast.Call):
        return False
    size = next((one.value for one in node.keywords if one.arg == "world_size"), None)
    return constant(size) == 1 or any(constant(one) == "fake" for one in ast.iter_child_nodes(node))


def ends(walker: Walker) -> None:
    """The same device on every process of a job."""
    begun = [mark for mark in walker.marks if mark.what == "init" and not alone(mark.node)]
    for mark in walker.marks:
        if mark.what != _SET or any(condition.kind for condition in mark.path):
            continue
        if any(full.startswith("ray") for full in mark.file.imports.values()):
            continue  # Ray shows each of its workers one GPU
        if any(implied(mark.path, one.path) or implied(one.path, mark.path) for one in begun):
            walker.report_at("FSD127", mark.file, mark.node, False)


CALLS = {"set_device": [chosen], "device": [device], "DDP": [wrapped], "init_process_group": [initialised]}
METHODS = {"to": [moved], "cuda": [moved], "set_device": [moved]}
ENDS = [ends]
