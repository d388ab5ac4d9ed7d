"""Definitions that only the old code used: policies and settings whose meaning stands in the new code."""

from __future__ import annotations

import ast

from .names import SETTINGS
from .unit import Unit


def clear(unit: Unit) -> None:
    """Delete assignments of FSDP1 settings whose every use is gone; what they themselves used is looked at again."""
    waiting = [node for node in unit.spent if isinstance(node, ast.Name)]
    gone = {id(inner) for node in unit.spent for inner in ast.walk(node)}
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        statement = _definition(unit, node)
        if statement is None or id(statement) in seen:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(target, ast.Name) or target.id in unit.asked_for:
            continue
        loads = [
            one for one in ast.walk(unit.file.tree)
            if isinstance(one, ast.Name) and one.id == target.id and isinstance(one.ctx, ast.Load)
        ]  # fmt: skip
        if any(id(one) not in gone for one in loads) or not _setting(unit, statement):
            continue
        if not unit.source.alone(statement) or unit.source.changes_in(*unit.source.span(statement)):
            continue
        unit.drop(statement)
        seen.add(id(statement))
        gone.update(id(inner) for inner in ast.walk(statement))
        waiting.extend(
            one for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        )


def _definition(unit: Unit, node: ast.Name) -> ast.stmt | None:
    values = unit.names.lookup(node, node.id)
    if len(values) != 1 or values[0] is None:
        return None
    statement = unit.statement(values[0])
    return statement if isinstance(statement, ast.Assign) and statement.value is values[0] else None


def _setting(unit: Unit, statement: ast.stmt) -> bool:
    """Whether a statement makes an FSDP1 setting and does nothing else."""
    assert isinstance(statement, ast.Assign)
    named = False
    for node in ast.walk(statement.value):
        if isinstance(node, (ast.Await, ast.Yield, ast.NamedExpr)):
            return False
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = unit.canon(node).partition(".")[0]
            named = named or name in SETTINGS
        if isinstance(node, ast.Call):
            known = unit.canon(node.func) in SETTINGS or unit.full(node.func) == "functools.partial"
            if not known and not (isinstance(node.func, ast.Name) and node.func.id in ("set", "tuple", "list")):
                return False
    return named
