"""Code that has FSDP1 and FSDP2 side by side: which of the two a model is where a use of FSDP1 stands.

A model whose constructor is converted goes the way that the project has for its FSDP2 models, because its type says so. So what stands
behind a test of that type may stay as it is; what does not is either converted as well, or the constructor is left.
"""

from __future__ import annotations

import ast

from ..review.project import Definition
from .names import FSDP1
from .unit import Unit

_VERSIONS = (0, 1, 2)  # neither, FSDP1, FSDP2


def ways(unit: Unit, node: ast.AST, text: str) -> set[int] | None:
    """What ``text`` may be at a node, as tests of its type around and before it say; None where there is no such test."""
    left, tested = set(_VERSIONS), False
    for test, holds in _tests(unit, node):
        answers = {version: _answer(unit, test, text, version) for version in _VERSIONS}
        if set(answers.values()) == {None}:
            continue
        tested = True
        left -= {version for version, answer in answers.items() if answer is not None and answer != holds}
    return left if tested else None


def _tests(unit: Unit, node: ast.AST) -> list[tuple[ast.expr, bool]]:
    """Every test that a node depends on, with what it must have said, innermost function only."""
    out: list[tuple[ast.expr, bool]] = []
    inner: ast.AST = node
    here = unit.parent(node)
    while here is not None:
        if isinstance(here, ast.If) and inner is not here.test:
            out.append((here.test, inner in here.body))
        elif isinstance(here, ast.IfExp) and inner is not here.test:
            out.append((here.test, inner is here.body))
        elif isinstance(here, ast.BoolOp) and isinstance(here.op, ast.And):
            out.extend((one, True) for one in here.values[: here.values.index(inner)])  # type: ignore[arg-type]
        if isinstance(inner, ast.stmt):
            block = unit.block(inner)
            if inner in block:
                out.extend(_before(block[: block.index(inner)]))
        if isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        inner, here = here, unit.parent(here)
    return out


def _before(statements: list[ast.stmt]) -> list[tuple[ast.expr, bool]]:
    """What earlier statements of a block leave over: assertions, and branches that go away."""
    out: list[tuple[ast.expr, bool]] = []
    for one in statements:
        if isinstance(one, ast.Assert):
            out.append((one.test, True))
        elif (
            isinstance(one, ast.If)
            and not one.orelse
            and isinstance(one.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))
        ):
            out.append((one.test, False))
    return out


def _answer(unit: Unit, test: ast.expr, text: str, version: int) -> bool | None:
    """What a test says where ``text`` is FSDP1 (1), FSDP2 (2) or neither (0); None where it asks for something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = _answer(unit, test.operand, text, version)
        return None if answer is None else not answer
    if isinstance(test, ast.BoolOp):
        answers = [_answer(unit, one, text, version) for one in test.values]
        decides = isinstance(test.op, ast.Or)
        if decides in answers:
            return decides
        return None if None in answers else not decides
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left = _value(unit, test.left, text, version)
        if left is None:
            return None
        try:
            right = ast.literal_eval(test.comparators[0])
            return _compare(test.ops[0], left, right)
        except (ValueError, TypeError, SyntaxError):
            return None
    value = _value(unit, test, text, version)
    return None if value is None else bool(value)


def _compare(op: ast.cmpop, left: object, right: object) -> bool | None:
    if isinstance(op, (ast.Eq, ast.Is)):
        return left == right
    if isinstance(op, (ast.NotEq, ast.IsNot)):
        return left != right
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (tuple, list, set)):
        return (left in right) == isinstance(op, ast.In)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if isinstance(op, ast.Gt):
            return left > right
        if isinstance(op, ast.GtE):
            return left >= right
        if isinstance(op, ast.Lt):
            return left < right
        if isinstance(op, ast.LtE):
            return left <= right
    return None


def _value(unit: Unit, node: ast.expr, text: str, version: int) -> object:
    """What isinstance, or a function of the project that asks it, gives; None where it is neither."""
    if not isinstance(node, ast.Call) or not node.args or ast.unparse(node.args[0]) != text:
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2:
        return _is_a(unit, node.args[1], version)
    definition = unit.definition(node.func)
    if definition is None or len(node.args) > 1 or node.keywords:
        return None
    return _returned(unit, definition, version)


def _is_a(unit: Unit, classes: ast.expr, version: int) -> bool | None:
    if isinstance(classes, ast.BinOp) and isinstance(classes.op, ast.BitOr):
        parts = [classes.left, classes.right]
    elif isinstance(classes, ast.Tuple):
        parts = classes.elts
    else:
        if unit.canon(classes) == FSDP1:
            return version == 1
        return version == 2 if unit.full(classes).endswith((".FSDPModule", "._composable.fsdp.FSDP")) else None
    answers = [_is_a(unit, part, version) for part in parts]
    return True if True in answers else None if None in answers else False


def _returned(unit: Unit, definition: Definition, version: int) -> object:
    """The constant that a function of one argument returns, decided by that argument's type alone."""
    function = definition.node
    owner = next((one for one in unit.units if one.file is definition.file), None)
    if owner is None or not isinstance(function, ast.FunctionDef) or not function.args.args:
        return None
    return _run(owner, function.body, function.args.args[0].arg, version)


def _run(unit: Unit, body: list[ast.stmt], name: str, version: int) -> object:
    for one in body:
        if isinstance(one, ast.Return):
            if isinstance(one.value, ast.Constant):
                return one.value.value
            return _answer(unit, one.value, name, version) if one.value is not None else None
        if isinstance(one, ast.If):
            answer = _answer(unit, one.test, name, version)
            if answer is None:
                return None
            found = _run(unit, one.body if answer else one.orelse, name, version)
            if found is not None:
                return found
        elif not isinstance(one, (ast.Expr, ast.Import, ast.ImportFrom)):
            return None
    return None
