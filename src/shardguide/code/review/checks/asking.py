"""What a program asks before it uses a name: which release is there, what the release has."""

from __future__ import annotations

import ast

from ..project import dotted_text

# Words of such tests.
GUARDS = ("hasattr", "getattr", "version", "Version", "is_available", "VERSION", "AVAILABLE", "HAS_", "SUPPORT")


def guards(test: ast.expr) -> bool:
    """Whether a test asks for the release or for what is there."""
    waiting: list[ast.AST] = [test]
    while waiting:
        inner = waiting.pop()
        for name, value in inner.__dict__.items():
            if value.__class__ is list:
                waiting += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST):
                waiting.append(value)
            elif (name == "id" or name == "attr") and (value == "dir" or any(word in value for word in GUARDS)):
                return True
    return False


def choice(body: list[ast.stmt]) -> bool:
    """Whether statements only choose among names: imports and assignments, behind tests or not."""
    return len(body) < 4 and all(
        isinstance(one, (ast.Import, ast.ImportFrom, ast.Assign))
        or (isinstance(one, ast.If) and choice(one.body) and choice(one.orelse))
        for one in body
    )


def only_named(tree: ast.AST, node: ast.expr) -> bool:
    """Whether an expression is only compared, or looked up by: nothing is called."""
    above: list[ast.AST] = []  # the nodes around, from outside in
    here = tree
    while here is not node:
        above.append(here)
        for child in ast.iter_child_nodes(here):
            if child is node or (_spans(child, node) and any(one is node for one in ast.walk(child))):
                here = child
                break
        else:
            return False
    parent: ast.AST | None = above[-1] if above else None
    if isinstance(parent, (ast.Tuple, ast.List, ast.Set)) and len(above) > 1:
        kinds: ast.AST = parent
        parent = above[-2]
        if isinstance(parent, ast.Dict) or (isinstance(kinds, (ast.List, ast.Set)) and isinstance(parent, ast.Call)):
            return False
    else:
        kinds = node
    if isinstance(parent, ast.Dict):
        return any(key is node for key in parent.keys)
    if isinstance(parent, ast.Call):
        asks = dotted_text(parent.func) in ("isinstance", "issubclass") and len(parent.args) == 2
        return asks and parent.args[1] is kinds
    return isinstance(parent, ast.Compare)


def _spans(around: ast.AST, node: ast.expr) -> bool:
    """Whether a node may hold another, by its lines; those without lines may."""
    first = getattr(around, "lineno", None)
    return first is None or first <= node.lineno <= (getattr(around, "end_lineno", None) or first)
