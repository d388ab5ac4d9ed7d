"""Methods of FSDP1 that are spoken of and not called: ``model.no_sync`` as a value, ``hasattr(model, "no_sync")``."""

from __future__ import annotations

import ast

from .unit import Unit

_METHODS = {"no_sync": "no_sync", "clip_grad_norm_": "clip_grad_norm"}  # method -> the function that does the same


def convert(unit: Unit) -> None:
    """Change all of a file."""
    for node in ast.walk(unit.file.tree):
        if id(node) in unit.handled:
            continue
        if isinstance(node, ast.Attribute) and node.attr in _METHODS and isinstance(node.ctx, ast.Load):
            parent = unit.parent(node)
            if not (isinstance(parent, ast.Call) and parent.func is node) and _ours(unit, node.value):
                _value(unit, node, node.value, node.attr)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("hasattr", "getattr")
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
            and node.args[1].value in _METHODS
            and (_ours(unit, node.args[0]) or _possibly(unit, node.args[0]))
        ):
            if node.func.id == "hasattr":
                _asked(unit, node)
            else:
                _value(unit, node, node.args[0], str(node.args[1].value))


def _ours(unit: Unit, owner: ast.expr) -> bool:
    """Whether a model is one that was converted, or may be one, where all were."""
    if unit.reading.things(owner):
        return unit.is_fsdp1(owner)
    codes = unit.constructors.get(unit.group, ())
    return bool(codes) and not any(codes) and not unit.beside and not unit.full(owner)


def _possibly(unit: Unit, owner: ast.expr) -> bool:
    """The same where the type is asked first, so that other models go the way they went."""
    codes = unit.constructors.get(unit.group, ())
    known = unit.reading.kinds(owner) - {"module", "submodule", "unknown"}
    return bool(codes) and not any(codes) and not unit.beside and not unit.full(owner) and not known


def _value(unit: Unit, node: ast.expr, owner: ast.expr, method: str) -> None:
    sure = unit.reading.kinds(owner) == {"fsdp1"}
    helper = unit.helper(_METHODS[method] if sure or method != "no_sync" else "no_sync_of")
    partial = unit.need("functools.partial")
    source = unit.source
    if isinstance(node, ast.Attribute):
        source.replace(node, lambda: f"{partial}({helper}, {source.text(owner)})")
    else:  # getattr, with a default for what has none
        ours = unit.need("torch.distributed.fsdp.FSDPModule")
        source.replace(
            node,
            lambda: (
                f"({partial}({helper}, {source.text(owner)}) if isinstance({source.text(owner)}, {ours}) "
                f"else {source.inside(node)})"
            ),
        )
    unit.use(node, "method", method, "converted")


def _asked(unit: Unit, node: ast.Call) -> None:
    """``hasattr(model, "no_sync")`` meant FSDP1, or DistributedDataParallel."""
    ours = unit.need("torch.distributed.fsdp.FSDPModule")
    source, owner, method = unit.source, node.args[0], str(node.args[1].value)  # type: ignore[attr-defined]
    source.replace(node, lambda: f"(isinstance({source.text(owner)}, {ours}) or {source.inside(node)})")
    unit.use(node, "isinstance", method, "converted")
