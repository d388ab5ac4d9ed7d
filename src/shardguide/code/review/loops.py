"""How often a loop runs, and whether that differs over the ranks."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .conditions import about
from .methods import class_of, inherited, iterable
from .project import Definition, dotted_text
from .records import Thing, Things

if TYPE_CHECKING:
    from .walk import Walker

_AROUND = frozenset({"enumerate", "tqdm", "iter", "list", "zip", "trange"})
_RANKS = ("rank", "local_rank")

Count = tuple[
    int, str, str, bool
]  # times (-1: unknown), why it is uneven, the rule that says so, whether it is certain
_EVEN: Count = (-1, "", "", False)


def trip_count(walker: Walker, node: ast.For | ast.AsyncFor | ast.While, things: Things) -> Count:
    """How often a loop runs."""
    if isinstance(node, ast.While):
        return _while(walker, node)
    over = node.iter
    for _ in range(4):  # enumerate(tqdm(…))
        if not (isinstance(over, ast.Call) and over.args and dotted_text(over.func).rpartition(".")[2] in _AROUND):
            break
        over = over.args[0]
    if isinstance(over, (ast.Tuple, ast.List)) and not any(isinstance(one, ast.Starred) for one in over.elts):
        return (len(over.elts), "", "", False)
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
        return _range(walker, over)
    if isinstance(over, ast.Call) and (count := _generated(walker, over)) is not None:
        return count
    if isinstance(over, ast.Subscript) and isinstance(over.slice, ast.Slice):
        rank = _rank_in(walker, over.slice)
        if rank is not None and not _joined(walker):
            return (-1, f"it runs over {walker.source(over)}, whose length may differ by one", "FSD210", False)
    # Inside a loop over epochs the data may end before the steps do.
    return _EVEN if _counted(node) and not walker.loop_depth else _data(walker, things)


def _range(walker: Walker, over: ast.Call) -> Count:
    numbers = [argument.value for argument in over.args if isinstance(argument, ast.Constant)]
    if len(over.args) == 1 and len(numbers) == 1 and isinstance(numbers[0], int):
        return (max(0, numbers[0]), "", "", False)
    rank = next((found for argument in over.args if (found := _rank_in(walker, argument)) is not None), None)
    if rank is None or _joined(walker):
        return _EVEN
    strided = len(over.args) == 3
    why = f"it runs over {walker.source(over)}"
    return (-1, why + (", whose length may differ by one" if strided else ""), "FSD210", rank.sure and not strided)


def _generated(walker: Walker, over: ast.Call) -> Count | None:
    """A loop over a generator of the project, which yields as often as an argument says that is worked out from the rank."""
    text = dotted_text(over.func)
    found = walker.project.resolve(walker.frame.file, text) if text else ""
    if not isinstance(found, Definition) or isinstance(found.node, ast.ClassDef) or _joined(walker):
        return None
    names = [argument.arg for argument in (*found.node.args.posonlyargs, *found.node.args.args)]
    given = {**dict(zip(names, over.args, strict=False)), **{one.arg or "": one.value for one in over.keywords}}
    for item in found.node.body:
        if not isinstance(item, ast.For) or not isinstance(item.iter, ast.Call) or len(item.iter.args) != 1:
            continue
        number = item.iter.args[0]
        if dotted_text(item.iter.func) == "range" and isinstance(number, ast.Name) and number.id in given:
            count = given[number.id]
            yields = any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(item))
            if yields and _rank_in(walker, count) is not None:
                return (-1, f"{found.node.name} yields {walker.source(count)} times", "FSD210", False)
    return None


def _while(walker: Walker, node: ast.While) -> Count:
    if _joined(walker):
        return _EVEN
    test = node.test
    if (
        isinstance(test, ast.Compare)
        and not isinstance(test.left, ast.Constant)
        and not isinstance(test.comparators[0], ast.Constant)
        and _rank_in(walker, test) is not None
    ):
        return (-1, f"it goes on while {walker.source(test)}", "FSD210", False)
    if about(walker, test) == "local":
        return (-1, f"it goes on while {walker.source(test)}, which each rank works out on its own", "FSD210", False)
    for inner in node.body:
        if isinstance(inner, ast.Try) and any(_stops(handler) for handler in inner.handlers):
            for call in ast.walk(inner):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "next":
                    return _data(walker, walker.peek(call.args[0]) if call.args else ())
    return _EVEN


def _counted(node: ast.For | ast.AsyncFor) -> bool:
    """Whether the loop ends at a number of steps: if step >= steps: break."""
    return any(
        isinstance(item, ast.If)
        and isinstance(item.test, (ast.Compare, ast.BoolOp))
        and isinstance(item.body[-1], (ast.Break, ast.Return))
        for item in node.body
    )


def _stops(handler: ast.ExceptHandler) -> bool:
    return handler.type is not None and dotted_text(handler.type) == "StopIteration"


def _joined(walker: Walker) -> bool:
    return walker.inside("Join") or walker.inside("join")


def _rank_in(walker: Walker, node: ast.AST) -> Thing | None:
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Name, ast.Attribute, ast.Call)):
            for thing in walker.peek(inner):
                if thing.kind in _RANKS:
                    return thing
    return None


def _data(walker: Walker, things: Things) -> Count:
    """A loop over batches."""
    for thing in things:
        if thing.kind == "loader" and not _joined(walker):
            data = thing.attrs.get("dataset", ())
            if data and all(_ends_by_itself(walker, one) for one in data):
                name = data[0].name
                return (-1, f"{name} is an IterableDataset: each rank ends when its own data does", "FSD212", False)
    return _EVEN


def _ends_by_itself(walker: Walker, thing: Thing) -> bool:
    """Whether a thing is an IterableDataset of the project, without a length of its own, that comes to an end."""
    target = class_of(thing)
    if target is None or not iterable(walker.project, target) or _endless(walker, target):
        return False
    return inherited(walker.project, target, "__len__") is None


def _endless(walker: Walker, target: Definition) -> bool:
    """Whether a data set begins again when its data ends, or reads from another one, which may."""
    method = inherited(walker.project, target, "__iter__")
    for inner in ast.walk(target.node if method is None else method.node):
        if isinstance(inner, ast.While) and isinstance(inner.test, ast.Constant) and inner.test.value:
            return True
        if isinstance(inner, ast.Name) and inner.id in ("cycle", "count", "repeat"):
            return True
        if isinstance(inner, ast.Attribute) and inner.attr in ("dataset", "cycle", "count", "repeat"):
            return True
    return False
