"""Tensors that collectives get: where they live, their shapes, their tags and partners (FSD215, 218-220, 224)."""

from __future__ import annotations

import ast

from ..project import dotted_text
from ..records import Call
from ..torch_names import COLLECTIVES
from ..walk import Walker
from .collectives import group_given
from .common import around, assigned_once, constant, of_rank

_MADE = frozenset(
    f"torch.{name}"
    for name in ("tensor", "zeros", "ones", "empty", "full", "rand", "randn", "arange", "as_tensor", "eye", "linspace")
)
_OBJECTS = {"all_gather_object": 1, "gather_object": 0, "broadcast_object_list": 0, "scatter_object_list": 1}
_MASKS = frozenset({"nonzero", "unique", "masked_select", "argwhere"})


def tensor(walker: Walker, call: Call) -> None:
    """A tensor on the CPU, in a program of NCCL alone."""
    if group_given(call) is not None or call.name in _OBJECTS or walker.inside("device"):
        return
    at = 1 if call.name in ("all_gather", "all_gather_into_tensor", "reduce_scatter") else 0
    given = call.argument("tensor", at)
    if given is not None and on_cpu(walker, given) and not any(one.kind == "guard" for one in walker.path):
        walker.fact("cpu tensor", call.node)


def on_cpu(walker: Walker, node: ast.expr) -> bool:
    """Whether an expression is a tensor that was made without a device, or moved to the CPU."""
    made = assigned_once(walker, node)
    if not isinstance(made, ast.Call):
        return False
    if isinstance(made.func, ast.Attribute) and made.func.attr == "cpu" and not made.args:
        return True
    if walker.full(made.func) in _MADE:
        device = next((one.value for one in made.keywords if one.arg == "device"), None)
        if any(one.arg is None for one in made.keywords):
            return False
        if made.args and walker.full(made.func).endswith("as_tensor"):
            return False  # it stays where its data is
        return device is None or constant(device) == "cpu"
    return False


def default_device(walker: Walker, call: Call) -> None:
    """The program sets a default device."""
    walker.fact("default device", call.node)


def on_gpu(walker: Walker, node: ast.expr) -> bool:
    """Whether an expression says itself that it is a tensor on a GPU."""
    made = assigned_once(walker, node)
    if isinstance(made, ast.List) and len(made.elts) == 1:
        made = assigned_once(walker, made.elts[0])
    if not isinstance(made, ast.Call):
        return False
    if isinstance(made.func, ast.Attribute):
        if made.func.attr == "cuda":
            return True
        if made.func.attr == "to" and made.args:
            return str(constant(made.args[0])).startswith("cuda")
    device = next((constant(one.value) for one in made.keywords if one.arg == "device"), None)
    return str(device).startswith("cuda") and walker.full(made.func).startswith("torch.")


def objects(walker: Walker, call: Call) -> None:
    """GPU tensors as objects."""
    at = _OBJECTS[call.name]
    if at < len(call.node.args) and not call.spread() and on_gpu(walker, call.node.args[at]):
        walker.report("FSD220", call.node, False, what=call.name)


def shapes(walker: Walker, call: Call) -> None:
    """all_gather of a tensor whose length comes from this rank's data."""
    given = call.argument("tensor", 1)
    made = assigned_once(walker, given) if given is not None else None
    if made is None or not _from_data(walker, made):
        return
    scope = around(walker)
    for inner in ast.walk(scope):
        name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
        if isinstance(name, str) and ("pad" in name.lower() or name in ("all_gather_object", "shape", "size", "sizes")):
            return  # lengths are seen to
    walker.report("FSD224", call.node, False, what=walker.source(given) if given is not None else "the tensor")


def _from_data(walker: Walker, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Compare, ast.Name)):
        index = assigned_once(walker, node.slice)
        return isinstance(index, ast.Compare)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("to", "cuda", "squeeze", "flatten", "view") and isinstance(node.func, ast.Attribute):
            return _from_data(walker, node.func.value)
        if walker.full(node.func) == "torch.tensor" and node.args and isinstance(node.args[0], ast.Name):
            filled = walker.written(node.args[0])
            return isinstance(filled, ast.List) and not filled.elts  # a list that grows
        if walker.full(node.func) in _MADE and name not in ("tensor", "as_tensor"):
            return any(of_rank(walker, argument) is not None for argument in node.args)  # torch.zeros(3 + rank)
        return name in _MASKS
    return False


def sent(walker: Walker, call: Call) -> None:
    """Point-to-point calls: their tags, and that not all ranks send first."""
    if call.argument("tag", 3) is not None and constant(call.argument("tag", 3)) != 0 and group_given(call) is None:
        walker.fact("tag", call.node)
    if call.name == "send" and not any(one.kind in ("rank", "") for one in walker.path):
        to = call.argument("dst", 1)
        if to is not None and of_rank(walker, to) is not None:
            walker.note("sent", call.node)
    if call.name == "recv" and not any(one.kind in ("rank", "") for one in walker.path):
        source = call.argument("src", 1)
        if source is not None and of_rank(walker, source) is not None:
            for mark in walker.marks:
                if mark.what == "sent" and mark.path == walker.path and not mark.looped:
                    walker.report_at("FSD219", mark.file, mark.node, False)


def project(walker: Walker) -> None:
    """What NCCL alone cannot do."""
    facts = walker.facts
    if not facts.get("nccl only") or facts.get("other backend"):
        return
    if not facts.get("default device"):
        for file, node in facts.get("cpu tensor", ()):
            walker.report_at("FSD215", file, node, False, what=dotted_text(getattr(node, "func", node)))
    for file, node in facts.get("tag", ()):
        walker.report_at("FSD218", file, node, False)


CALLS = {
    **{name: [tensor] for name in sorted(COLLECTIVES) if name not in ("barrier", "monitored_barrier")},
    **{name: [objects] for name in _OBJECTS},
    "set_default_device": [default_device],
    "set_default_tensor_type": [default_device],
    "send": [sent],
    "recv": [sent],
    "isend": [sent],
    "irecv": [sent],
}
CALLS["all_gather"] = [tensor, shapes]
PROJECT = [project]
