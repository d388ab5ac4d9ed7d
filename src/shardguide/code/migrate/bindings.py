"""The value that a name has at a place, where it is bound more than once."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from .unit import Unit

_THROUGH = (ast.If, ast.With, ast.Try)


def latest(unit: Unit, node: ast.Name) -> ast.expr | None:
    """The value of the last assignment above a name, if nothing between the two can bind it; None where that is not sure."""
    here = unit.statement(node)
    while True:
        block = unit.block(here)
        if here not in block:
            return None
        for one in reversed(block[: block.index(here)]):
            if not any(isinstance(part, ast.Name) and part.id == node.id and not isinstance(part.ctx, ast.Load)
                       for part in ast.walk(one)):  # fmt: skip
                continue
            if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
                return one.value
            return None
        parent = unit.parent(here)
        if not isinstance(parent, _THROUGH):
            return None
        here = parent


def top(tree: ast.Module) -> dict[str, str]:
    """What the import statements of a module bind at its top: name -> full name."""
    out: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                out[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                out[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return out
