"""What several checks ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from shardguide.guidance.hints import Any

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


def one_rank(walker: Walker) -> bool:
    """Whether one rank alone is here: rank == 0, not rank < 8."""
    return any(one.kind == "rank" and one.arm and "rank == " in one.key for one in walker.path)


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


def around(walker: Walker) -> ast.AST:
    """The function that is followed, or the module."""
    return walker.stack[-1] if walker.stack else walker.frame.file.tree


def place(scope: ast.AST, node: ast.AST) -> list[tuple[ast.AST, list[ast.stmt], int]]:
    """Where a node stands: the compound statements around it, each with the block and the place in it, from outside in."""
    out: list[tuple[ast.AST, list[ast.stmt], int]] = []
    line: int = getattr(node, "lineno", 0)
    here: Any = scope
    while True:
        found: tuple[Any, list[Any], int] | None = None
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            block = getattr(here, name, None)
            for at, statement in enumerate(block if isinstance(block, list) else ()):
                case = isinstance(statement, ast.match_case)
                first = statement.pattern.lineno if case else statement.lineno
                if first <= line <= (statement.body[-1] if case else statement).end_lineno:
                    found = (here, block or [], at)
        if found is None:
            return out
        here = found[1][found[2]]
        if not isinstance(here, (ast.ExceptHandler, ast.match_case)):
            out.append(found)


def whole_of(walker: Walker, node: ast.expr | None) -> ast.expr | None:
    """What an element was taken from, through names: torch.load(path) for state["model"]. A name may be bound to its own element."""
    for _ in range(8):
        if isinstance(node, ast.Name):
            node = walker.written(node) or node
        if not isinstance(node, ast.Subscript):
            break
        node = node.value
    return node


def assigned_once(walker: Walker, node: ast.expr | None) -> ast.expr | None:
    """The expression behind a name of the function or of the module; the expression itself if it is no name."""
    if not isinstance(node, ast.Name):
        return node
    found = walker.written(node)
    if found is None and node.id not in walker.frame.env:
        found = walker.frame.file.values.get(node.id)
    return found


def all_within(walker: Walker, node: ast.AST, most: int = 10) -> Iterator[ast.AST]:
    """What stands in an expression, and in those that its names were bound to in this function."""
    waiting = [node]
    for one in waiting:  # it grows on the way
        for inner in ast.walk(one):
            yield inner
            if isinstance(inner, ast.Name) and len(waiting) < most:
                source = walker.frame.written.get(inner.id)
                if source is not None and source not in waiting:
                    waiting.append(source)


def of_rank(walker: Walker, node: ast.AST, depth: int = 3) -> Thing | None:
    """The rank that an expression is worked out from, names followed; None if it is from no rank."""
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Name, ast.Attribute, ast.Call)):
            for thing in walker.peek(inner):
                if thing.kind in ("rank", "local_rank"):
                    return thing
            if isinstance(inner, ast.Name) and depth > 0:
                written = walker.written(inner)
                found = of_rank(walker, written, depth - 1) if written is not None else None
                if found is not None:
                    return found
    return None
