"""DistributedDataParallel (FSD5xx)."""

from __future__ import annotations

import ast

from ..records import Call
from ..walk import Walker
from .common import is_true, kind_of


def wrapped(walker: Walker, call: Call) -> None:
    """DDP(module, …)."""
    ids = call.argument("device_ids", 1)
    if (
        isinstance(ids, (ast.List, ast.Tuple))
        and len(ids.elts) > 1
        and not any(isinstance(e, ast.Starred) for e in ids.elts)
    ):
        walker.report("FSD502", call.node, True)
    if is_true(call.argument("find_unused_parameters", 8)) and not is_true(call.argument("static_graph")):
        walker.fact("unused", call.node)
    walker.fact("ddp", call.node)


def checkpointed(walker: Walker, call: Call) -> None:
    """torch.utils.checkpoint.checkpoint, reentrant."""
    if is_true(call.argument("use_reentrant")):
        walker.fact("reentrant", call.node)


def entered(walker: Walker, node: ast.With | ast.AsyncWith, item: ast.withitem, name: str) -> None:
    """With model.no_sync(): the forward belongs inside too."""
    call = item.context_expr
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "no_sync"):
        return
    owners = walker.value(call.func.value)
    if kind_of(owners, "ddp", walker) != "yes":
        return
    backward = any(_method(inner) == "backward" for inner in _calls(node))
    others = [
        inner for inner in _calls(node) if _method(inner) not in ("backward", "no_sync", "scale", "item", "detach")
    ]
    ran = any(mark.what == "called" for owner in owners for mark in owner.marks)
    if backward and not others and ran:
        walker.report("FSD501", call, True)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def _method(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def converted(walker: Walker, call: Call) -> None:
    """SyncBatchNorm after DDP."""
    things = call.things("module", 0)
    if kind_of(things, "ddp", walker) == "yes":
        walker.report("FSD504", call.node, False)


def inner_called(walker: Walker, call: Call) -> None:
    """model.module(x): DDP's own forward is not run."""
    function = call.node.func
    if not (isinstance(function, ast.Attribute) and function.attr == "module"):
        return
    if kind_of(walker.value(function.value), "ddp", walker) == "yes" and not walker.without_gradients():
        walker.report("FSD505", call.node, False)


def project(walker: Walker) -> None:
    """Two facts in one program."""
    facts = walker.facts
    if facts.get("reentrant"):
        for file, node in facts.get("unused", ()):
            walker.report_at("FSD503", file, node, False)


CALLS = {
    "DDP": [wrapped],
    "checkpoint": [checkpointed],
    "convert_sync_batchnorm": [converted],
}
METHODS = {"()": [], "module": [inner_called]}
CONTEXTS = [entered]
PROJECT = [project]
