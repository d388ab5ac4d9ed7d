"""Plain values that reading alone can tell: numbers, texts, spans of time."""

from __future__ import annotations

import ast

from ..walk import Walker

_UNITS = {
    "days": 86400.0,
    "seconds": 1.0,
    "microseconds": 1e-6,
    "milliseconds": 1e-3,
    "minutes": 60.0,
    "hours": 3600.0,
    "weeks": 604800.0,
}
_DEPTH = 4


def bound(walker: Walker, node: ast.AST | None) -> ast.AST | None:
    """The expression behind a name that is bound once, in the function or in the module; else the node itself."""
    for _ in range(_DEPTH):
        if not isinstance(node, ast.Name):
            return node
        written = walker.frame.written
        if node.id in written:
            found = written[node.id]
        elif walker.stack and node.id in _parameters(walker.stack[-1]):
            return node
        else:
            found = walker.frame.file.values.get(node.id)
        if found is None or found is node:
            return node
        node = found
    return node


def _parameters(node: ast.AST) -> set[str]:
    given = getattr(node, "args", None)
    if not isinstance(given, ast.arguments):
        return set()
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def literal(walker: Walker, node: ast.AST | None, depth: int = 6) -> object:
    """The value of an expression of constants; None for anything else (and for None)."""
    node = bound(walker, node) if depth else None
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(walker, node.operand, depth - 1)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add, ast.Sub)):
        left, right = number(walker, node.left, depth - 1), number(walker, node.right, depth - 1)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Mult):
            return left * right
        return left + right if isinstance(node.op, ast.Add) else left - right
    return None


def number(walker: Walker, node: ast.AST | None, depth: int = 6) -> float | None:
    """The value of an expression of numbers."""
    value = literal(walker, node, depth)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text(walker: Walker, node: ast.AST | None, depth: int = 6) -> str:
    """The text of a constant, or the constant beginning of an f-string or a sum; "" for anything else."""
    node = bound(walker, node) if depth else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        out = ""
        for part in node.values:
            if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
                break
            out += part.value
        return out
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(walker, node.left, depth - 1)
    return ""


def span(walker: Walker, node: ast.AST | None) -> tuple[float, bool] | None:
    """The seconds of a ``datetime.timedelta`` of constants, and whether its days stand without a name."""
    node = bound(walker, node)
    if isinstance(node, ast.Attribute) and walker.full(node) == "datetime.timedelta.max":
        return float("inf"), False
    if not isinstance(node, ast.Call) or walker.full(node.func) != "datetime.timedelta" or len(node.args) > 2:
        return None
    total = 0.0
    for unit, argument in zip(("days", "seconds"), node.args, strict=False):
        value = number(walker, argument)
        if value is None:
            return None
        total += value * _UNITS[unit]
    for keyword in node.keywords:
        value = number(walker, keyword.value)
        if value is None or keyword.arg not in _UNITS:
            return None
        total += value * _UNITS[keyword.arg]
    return total, bool(node.args)
