"""What a test around an expression says of it: ``if isinstance(model, FSDP)`` and the like."""

from __future__ import annotations

import ast

from .names import FSDP1
from .unit import Unit


def narrowed(unit: Unit, node: ast.expr) -> str:
    """Say "fsdp1" or "other" where a test for its type decides what an expression is, "" where none does."""
    text = ast.unparse(node)
    inner: ast.AST = node
    here = unit.parent(node)
    while here is not None and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        if isinstance(here, (ast.If, ast.IfExp)):
            holds = inner in here.body if isinstance(here, ast.If) else inner is here.body
            tests = (
                here.test.values
                if isinstance(here.test, ast.BoolOp) and isinstance(here.test.op, ast.And)
                else [here.test]
            )
            for test in tests:
                found = _is_fsdp1(unit, test, text)
                if found is None or inner is here.test:
                    continue
                if holds:
                    return "fsdp1" if found else "other"
                if found and len(tests) == 1:
                    return "other"
        inner, here = here, unit.parent(here)
    return _by_flags(unit, node)


def _by_flags(unit: Unit, node: ast.expr) -> str:
    """The same for ``if args.fsdp``, where the model was made under such a test as well."""
    here = _flags(unit, node)
    made: dict[str, list[set[tuple[str, bool]]]] = {"fsdp1": [], "ddp": []}
    for thing in unit.reading.things(node) if here else ():
        if thing.kind in made and thing.node is not None:
            owner = unit.owner(thing.node)
            made[thing.kind].append(_flags(owner, thing.node) if owner is not None else set())
    ours, others = (set.intersection(*sets) if sets else set() for sets in made.values())
    if any((text, not holds) in ours for text, holds in here):
        return "other"
    return "fsdp1" if any((text, not holds) in others for text, holds in here & ours) else ""


def _flags(unit: Unit, node: ast.AST) -> set[tuple[str, bool]]:
    """Settings that decide whether a place is reached, and what they are there: ``args.fsdp`` and the like."""
    out: set[tuple[str, bool]] = set()
    inner, here = node, unit.parent(node)
    while here is not None and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        if isinstance(here, (ast.If, ast.IfExp)) and inner is not here.test:
            holds = inner in here.body if isinstance(here, ast.If) else inner is here.body
            test = here.test
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, holds = test.operand, not holds
            if isinstance(test, ast.Attribute):
                out.add((ast.unparse(test), holds))
        inner, here = here, unit.parent(here)
    return out


def _is_fsdp1(unit: Unit, test: ast.expr, text: str) -> bool | None:
    """Whether ``isinstance(text, …)`` asks for FSDP1; None for any other test, and for one of several types."""
    if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Name) or test.func.id != "isinstance":
        return None
    if len(test.args) != 2 or ast.unparse(test.args[0]) != text:
        return None
    classes = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
    ours = [unit.canon(one) == FSDP1 for one in classes]
    return None if any(ours) and not all(ours) else any(ours)
