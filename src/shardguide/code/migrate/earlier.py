"""FSDP2 as releases before 2.6 had it, in torch.distributed._composable.fsdp: names and defaults of the release wanted."""

from __future__ import annotations

import ast

from .todos import Refusal
from .unit import Unit

_OLD = "torch.distributed._composable.fsdp"
_TENSOR = "torch.distributed._tensor"
_NEW = "torch.distributed.fsdp"
_RENAMED = {"FSDP": "FSDPModule"}
# A method's earlier name, and the release from which the other one is there.
_METHODS = {"set_reduce_scatter_divide_factor": "set_gradient_divide_factor"}


def convert(unit: Unit) -> None:
    """Imports, the model class, and arguments whose default has changed."""
    if _OLD not in unit.file.text or not unit.target.has(f"{_NEW}.fully_shard"):
        return
    imports = [
        node for node in ast.walk(unit.file.tree)
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith((_OLD, _TENSOR))
    ]  # fmt: skip
    changed = False
    for node in imports:
        try:
            _import(unit, node)
        except Refusal as refusal:
            unit.leave(node, "import", node.module or "", refusal)
        else:
            changed = True
            unit.use(node, "import", node.module or "", "converted")
    for one in ast.walk(unit.file.tree):
        if isinstance(one, ast.Import) and any(alias.name.startswith(_OLD) for alias in one.names):
            why = "A whole private module is imported; name what is used of it."
            unit.leave(one, "import", _OLD, Refusal("both", why))
        elif changed and isinstance(one, ast.Call):
            _call(unit, one)


def _import(unit: Unit, node: ast.ImportFrom) -> None:
    if isinstance(unit.parent(node), (ast.If, ast.Try, ast.ExceptHandler)):
        raise Refusal("both", "The import is chosen by the release at hand.")
    source = unit.source
    home = _NEW
    if (node.module or "").startswith(_TENSOR):
        home = "torch.distributed.tensor"
    for alias in node.names:
        name = _RENAMED.get(alias.name, alias.name)
        if alias.name == "*" or not unit.target.has(f"{home}.{name}"):
            raise Refusal("private", f"{alias.name} is in no public module of this release.")
    start = source.data.index(b"torch", source.span(node)[0])
    source.cut(start, start + len((node.module or "").encode()), home)
    for alias in node.names:
        new = _RENAMED.get(alias.name)
        if new is None:
            continue
        if alias.asname:
            source.replace(alias, f"{new} as {alias.asname}")
            continue
        source.replace(alias, new)
        for one in ast.walk(unit.file.tree):
            if isinstance(one, ast.Name) and one.id == alias.name:
                source.replace(one, new)


def _call(unit: Unit, node: ast.Call) -> None:
    full = unit.full(node.func)
    if full.startswith(_OLD) and full.rpartition(".")[2] == "fully_shard":
        for keyword in node.keywords:
            if keyword.arg == "reshard_after_forward" and unit.target.at_least >= (2, 8):
                _reshard(unit, node, keyword)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        new = _METHODS[node.func.attr]
        if unit.target.has(f"{_NEW}.FSDPModule.{new}"):
            end = unit.source.span(node.func)[1]
            unit.source.cut(end - len(node.func.attr), end, new)
            unit.use(node, "method", node.func.attr, "converted")


def _reshard(unit: Unit, node: ast.Call, keyword: ast.keyword) -> None:
    """True was the default and never held for the root; None means just that, and True no longer does."""
    value = keyword.value
    if isinstance(value, ast.Constant) and value.value is True:
        unit.source.replace(value, "None")
        unit.use(keyword, "argument", "reshard_after_forward=True", "converted")
    elif not isinstance(value, ast.Constant):
        unit.todo(keyword, "old-default")
