"""DistributedDataParallel (FSD5xx)."""

from __future__ import annotations

import ast

from ..project import File, dotted_text
from ..records import Call, Thing
from ..walk import RANKS, Walker
from .common import around, constant, drop_argument, is_true, kind_of, replace
from .groups import of_some
from .literals import bound
from .parts import in_tests

# What stands for a list, or for one on some way, though a rank is in it.
_LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.IfExp, ast.BoolOp, ast.BinOp)


def wrapped(walker: Walker, call: Call) -> None:
    """DDP(module, …)."""
    ids = call.argument("device_ids", 1)
    if (
        isinstance(ids, (ast.List, ast.Tuple))
        and len(ids.elts) > 1
        and not any(isinstance(e, ast.Starred) for e in ids.elts)
    ):
        walker.report("FSD502", call.node, True)
    if isinstance(ids, ast.Call) and dotted_text(ids.func) in ("list", "range"):
        calls = [inner for inner in ast.walk(ids) if isinstance(inner, ast.Call)]
        if any(walker.full(inner.func).endswith(".device_count") for inner in calls):
            walker.report("FSD502", call.node, False)
    if is_true(call.argument("find_unused_parameters", 8)) and is_true(call.argument("static_graph")):
        walker.report("FSD506", call.node, True, *drop_argument(call, "find_unused_parameters"))
    _devices(walker, call, ids)
    _together(walker, call)
    own = call.argument("process_group") is not None or call.argument("device_mesh") is not None or call.spread()
    if not own and not of_some(walker):
        walker.event("FSD518", "DistributedDataParallel(...)", call.node)
    if is_true(call.argument("find_unused_parameters", 8)) and not is_true(call.argument("static_graph")):
        walker.fact("unused", call.node)
    walker.fact("ddp", call.node)
    if any(_has(thing, "BatchNorm") for thing in call.things("module", 0)):
        walker.fact("batch norm", call.node)


def _number(source: ast.AST | None) -> bool:
    """Whether what stands for a rank may be the number itself: not a list with it, nor a parameter that may hold one."""
    return not isinstance(source, _LISTS) and (not isinstance(source, ast.Name) or source.id in RANKS)


def _devices(walker: Walker, call: Call, ids: ast.expr | None) -> None:
    """device_ids is a list; without one, and without set_device, a model on the GPU is on GPU 0."""
    local = call.things("device_ids", 1)
    if isinstance(constant(ids), int) or (
        isinstance(ids, (ast.Name, ast.Call))
        and _number(bound(walker, ids))
        and any(t.kind in ("rank", "local_rank") and t.sure for t in local)
    ):
        edits = replace(ids, f"[{walker.source(ids)}]") if ids is not None else ()
        walker.report("FSD516", call.node, True, *edits)
    if ids is None and not call.spread():
        module = bound(walker, call.argument("module", 0))
        if isinstance(module, ast.Call) and isinstance(module.func, ast.Attribute):
            argument = constant(module.args[0]) if module.args else None
            if (module.func.attr == "cuda" and not module.args) or (module.func.attr == "to" and argument == "cuda"):
                walker.fact("ddp on cuda", call.node)


def _together(walker: Walker, call: Call) -> None:
    """Arguments that exclude or need each other."""
    given = {
        keyword.arg
        for keyword in call.node.keywords
        if not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
    }
    if {"process_group", "device_mesh"} <= given:
        walker.report("FSD517", call.node, True, why="process_group and device_mesh exclude each other: RuntimeError")
    delays = {"delay_all_reduce_named_params", "param_to_hook_all_reduce"} & given
    if len(delays) == 1 and not call.spread():
        why = "delay_all_reduce_named_params and param_to_hook_all_reduce need each other: ValueError"
        walker.report("FSD517", call.node, True, why=why)


def data_parallel(walker: Walker, call: Call) -> None:
    """DataParallel(module, …)."""
    file, here = walker.frame.file, around(walker)
    lines = b"\n".join(file.lines[here.lineno - 1 : here.end_lineno]) if isinstance(here, ast.FunctionDef) else b""
    # Beside DDP it is the way for one process.
    if not in_tests(file) and not any(words in lines for words in (b"DistributedDataParallel(", b"DDP(")):
        walker.report("FSD510", call.node, False)


def model_called(walker: Walker, call: Call) -> None:
    """A DDP model's forward: with buffers it is a collective, and its backward always."""
    if kind_of(call.owner, "ddp", walker) != "yes" or not any(one.kind == "rank" for one in walker.path):
        return
    if of_some(walker):
        return
    if not walker.without_gradients() or any(
        _has(thing, "BatchNorm", "register_buffer") for owner in call.owner for thing in owner.of
    ):
        walker.event("FSD519", "the forward of a DDP model", call.node, False)


def _has(thing: Thing, *names: str) -> bool:
    """Whether a model of the project's class uses any of these, as BatchNorm does of buffers that DDP sends around."""
    held = thing.attrs.get("class")
    return held is not None and any(
        isinstance(inner, ast.Attribute) and inner.attr.startswith(names)
        for inner in ast.walk(held[0].node or ast.Pass())
    )


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


def _reentrant(walker: Walker, file: File) -> bool:
    """Whether a file checkpoints with a reentrant backward, also in a forward that nothing here calls."""
    if "use_reentrant=True" not in file.text:
        return False
    for inner in ast.walk(file.tree):
        if isinstance(inner, ast.Call) and any(k.arg == "use_reentrant" and is_true(k.value) for k in inner.keywords):
            found = walker.project.resolve(file, dotted_text(inner.func)) if dotted_text(inner.func) else ""
            if isinstance(found, str) and found.startswith("torch.utils.checkpoint."):
                return True
    return False


def project(walker: Walker) -> None:
    """Two facts in one program."""
    facts = walker.facts
    small = {file for file, _ in facts.get("few", ())}
    for file, node in facts.get("batch norm", ()):
        if file in small and not any("SyncBatchNorm" in one.text for one in walker.project.files):
            walker.report_at("FSD511", file, node, False)
    if not facts.get("device"):
        for file, node in facts.get("ddp on cuda", ()):
            walker.report_at("FSD509", file, node, False)
    if facts.get("reentrant") or (facts.get("unused") and any(_reentrant(walker, one) for one in walker.project.files)):
        for file, node in facts.get("unused", ()):
            walker.report_at("FSD503", file, node, False)


CALLS = {
    "DDP": [wrapped],
    "DataParallel": [data_parallel],
    "checkpoint": [checkpointed],
    "convert_sync_batchnorm": [converted],
}
METHODS = {"()": [model_called], "module": [inner_called]}
CONTEXTS = [entered]
PROJECT = [project]
