"""What several checks ask."""

from __future__ import annotations

import ast

from ..records import Call, Edit, Thing, Things, marked
from ..walk import Walker


def constant(node: ast.AST | None) -> object:
    """The value of a constant; None for anything else (and for None)."""
    return node.value if isinstance(node, ast.Constant) else None


def is_true(node: ast.AST | None) -> bool:
    """Whether an expression is a plain True."""
    return isinstance(node, ast.Constant) and node.value is True


def is_false(node: ast.AST | None) -> bool:
    """Whether an expression is a plain False."""
    return isinstance(node, ast.Constant) and node.value is False


def last(walker: Walker, node: ast.AST | None) -> str:
    """The last part of the name of something imported: NO_SHARD for ShardingStrategy.NO_SHARD."""
    if node is None:
        return ""
    full = walker.full(node)
    return full[full.rfind(".") + 1 :]


def kind_of(things: Things, kind: str, walker: Walker) -> str:
    """Whether things are of a kind ("fsdp2": fully_shard was called on them): "yes", "maybe" or "no"."""
    if not things:
        return "no"
    if kind == "fsdp2":
        answers = {marked(thing, "fully_shard", walker.path) for thing in things}
    else:
        answers = {"yes" if thing.kind == kind else "no" for thing in things}
    return answers.pop() if len(answers) == 1 else "maybe" if answers & {"yes", "maybe"} else "no"


def models(things: Things) -> Things:
    """The models that parameters belong to."""
    return tuple(dict.fromkeys(of for thing in things if thing.kind in ("params", "param") for of in thing.of))


def within(thing: Thing, whole: Thing) -> bool:
    """Whether a thing is ``whole`` or a part of it."""
    for _ in range(12):
        if thing is whole:
            return True
        if not thing.of or thing.kind not in ("unknown", "submodule", "modulelist", "module"):
            return False
        thing = thing.of[0]
    return False


def drop_argument(call: Call, name: str) -> tuple[Edit, ...]:
    """The edit that takes a keyword and its comma out of a call; none where that is not plain."""
    arguments: list[ast.expr] = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
    for keyword in call.node.keywords:
        if keyword.arg != name or keyword.end_lineno is None or keyword.end_col_offset is None:
            continue
        at = arguments.index(keyword.value)
        if at:
            before = arguments[at - 1]
            if before.end_lineno is None or before.end_col_offset is None:
                return ()
            return (Edit(before.end_lineno, before.end_col_offset, keyword.end_lineno, keyword.end_col_offset, ""),)
        return ()
    return ()


def add_argument(call: Call, text: str) -> tuple[Edit, ...]:
    """The edit that adds a keyword at the end of a call that ends on the line of its last argument."""
    node = call.node
    arguments: list[ast.expr] = [*node.args, *(keyword.value for keyword in node.keywords)]
    if not arguments or any(isinstance(argument, ast.GeneratorExp) for argument in node.args):
        return ()
    end = max(arguments, key=lambda item: (item.end_lineno or 0, item.end_col_offset or 0))
    line, column = end.end_lineno or 0, end.end_col_offset or 0
    if node.end_lineno != line or (node.end_col_offset or 0) - column != 1:
        return ()  # a comma or a bracket follows
    return (Edit(line, column, line, column, f", {text}"),)


def replace(node: ast.AST, text: str) -> tuple[Edit, ...]:
    """The edit that puts other text in the place of an expression."""
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    end: int = getattr(node, "end_lineno", None) or 0
    end_column: int = getattr(node, "end_col_offset", None) or 0
    return (Edit(line, column, end, end_column, text),) if line and end else ()
