"""Whether ranks have agreed on what a test asks, so that all take the same way."""

from __future__ import annotations

import ast

from ..project import File

_TOGETHER = ("reduce", "gather", "broadcast", "sync", "agree", "consensus", "all_ranks", "any_rank")
_GLOBAL = ("norm", "global", "avg", "mean", "total", "reduced")


def agreed(file: File, node: ast.If | ast.While) -> bool:
    """Whether anything the test asks has been through a collective, by the names of what is called in the function around."""
    asked = {inner.id for inner in ast.walk(node.test) if isinstance(inner, ast.Name)}
    asked |= {inner.attr for inner in ast.walk(node.test) if isinstance(inner, ast.Attribute)}
    if any(mark in name.lower() for name in asked for mark in _GLOBAL):
        return True
    if any(_together(inner) for inner in ast.walk(node.test)):
        return True
    around = _around(file, node)
    for _ in range(3):  # flag = x.any(); total = reduce(flag); bad = total > 0
        grown = set(asked)
        for inner in ast.walk(around):
            if isinstance(inner, ast.Call) and _together(inner) and not asked.isdisjoint(_names(inner)):
                return True
            if isinstance(inner, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and inner.value is not None:
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                if any(not asked.isdisjoint(_names(target)) for target in targets):
                    if any(_together(call) for call in ast.walk(inner.value)):
                        return True
                    called = {
                        call.func.id
                        for call in ast.walk(inner.value)
                        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                    }  # loss = model(x): what is done to the model says nothing of the loss
                    grown |= _names(inner.value) - called - set(file.imports)
        if grown == asked:
            break
        asked = grown
    return False


def _together(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return any(mark in name.lower() for mark in _TOGETHER)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _around(file: File, node: ast.AST) -> ast.AST:
    """The innermost function that holds a statement."""
    best: ast.AST = file.tree
    for inner in ast.walk(file.tree):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            line = getattr(node, "lineno", 0)
            if inner.lineno <= line <= (inner.end_lineno or 0) and (
                isinstance(best, ast.Module) or inner.lineno >= getattr(best, "lineno", 0)
            ):
                best = inner
    return best
