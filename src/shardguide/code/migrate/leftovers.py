"""Definitions that only the old code used: policies and settings whose meaning stands in the new code."""

from __future__ import annotations

import ast

from .names import SETTINGS
from .unit import Unit


def clear(unit: Unit) -> None:
    """Delete assignments of FSDP1 settings whose every use is gone; what they themselves used is looked at again."""
    dropped = _spread(unit)
    spent = [node for node in unit.spent if _covered(unit, node)]
    waiting = [node for node in (*spent, *dropped) if isinstance(node, ast.Name)]
    gone = {id(inner) for node in (*spent, *dropped) for inner in ast.walk(node)}
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


def _covered(unit: Unit, node: ast.AST) -> bool:
    """Whether the changes take a node's place, so that it is not read any more."""
    start, end = unit.source.span(node)
    return any(first <= start and end <= last for first, last in unit.source.spans)


def _spread(unit: Unit) -> list[ast.AST]:
    """Delete dictionaries that only went into converted calls, as ``**options``; gives what stood in them."""
    out: list[ast.AST] = []
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        made = isinstance(node.value, ast.Dict) or (
            isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "dict"
        )
        if not made or name in unit.asked_for or not _simple_settings(unit, node.value):
            continue
        uses = [one for one in ast.walk(unit.file.tree) if isinstance(one, ast.Name) and one.id == name]
        loads = [one for one in uses if isinstance(one.ctx, ast.Load)]
        if len(uses) != len(loads) + 1 or not loads or not unit.source.alone(node):
            continue
        if all(any(one is gone for gone in unit.spent) for one in loads):
            unit.drop(node)
            out.extend(ast.walk(node.value))
    return out


def _simple_settings(unit: Unit, value: ast.expr) -> bool:
    """Whether a dictionary holds nothing that does anything: names, constants, FSDP1's settings."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and node is not value:
            full = unit.full(node.func)
            if unit.canon(node.func) not in SETTINGS and full not in ("functools.partial", "torch.device"):
                return False
        if isinstance(node, (ast.Await, ast.Yield, ast.NamedExpr)):
            return False
    return True


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


def names_of_the_class(unit: Unit) -> None:
    """Delete ``FSDP = fsdp.FullyShardedDataParallel`` where nothing uses that name any more."""
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if (id(unit.file), name) not in unit.reading.aliases.classes:
            continue
        loads = [one for one in ast.walk(unit.file.tree) if isinstance(one, ast.Name) and one.id == name]
        gone = all(
            any(start <= unit.source.span(one)[0] < end for start, end in unit.source.spans)
            for one in loads if isinstance(one.ctx, ast.Load)
        )  # fmt: skip
        if gone and name not in unit.asked_for and unit.source.alone(node):
            unit.drop(node)
            unit.use(node.value, "class", name, "converted")
        else:
            unit.todo(node.value, "class")
            unit.use(node.value, "class", name, "left", "class")


def forget(unit: Unit, statement: ast.stmt, name: str) -> None:
    """Take a name out of ``del`` statements, since nothing binds it any more."""
    for node in ast.walk(unit.function(statement)):
        if not isinstance(node, ast.Delete) or not unit.source.alone(node):
            continue
        gone = [one for one in node.targets if isinstance(one, ast.Name) and one.id == name]
        if gone and len(gone) == len(node.targets):
            unit.drop(node)
        elif gone:
            rest = [unit.source.raw(one) for one in node.targets if one not in gone]
            unit.source.replace(node, f"del {', '.join(rest)}")
