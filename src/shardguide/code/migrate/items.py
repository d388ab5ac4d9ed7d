"""State dicts of what a loop or a container gives: the model may be among it."""

from __future__ import annotations

import ast

from . import options
from .names import FSDP1, canonical
from .options import Kind
from .todos import Refusal
from .unit import Unit


def any_item(unit: Unit, owner: ast.expr) -> bool:
    """Whether something is one of many that a loop or a container gives, the model perhaps among them."""
    if unit.reading.kinds(owner) - {"unknown"}:
        return False
    if isinstance(owner, ast.Subscript):
        return True
    return isinstance(owner, ast.Name) and any(
        isinstance(one, (ast.For, ast.comprehension))
        and any(isinstance(part, ast.Name) and part.id == owner.id for part in ast.walk(one.target))
        for one in ast.walk(unit.function(owner))
    )


def module(unit: Unit, owner: ast.expr) -> bool:
    """Whether a test around it says that something is a module."""
    text, inner = ast.unparse(owner), unit.parent(owner)
    here = unit.parent(inner) if inner is not None else None
    while here is not None and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if isinstance(here, ast.If) and inner in here.body and isinstance(here.test, ast.Call):
            test = here.test
            if isinstance(test.func, ast.Name) and test.func.id == "isinstance" and len(test.args) == 2:
                name = unit.full(test.args[1])
                if ast.unparse(test.args[0]) == text and (name == "torch.nn.Module" or canonical(name) == FSDP1):
                    return True
        inner, here = here, unit.parent(here)
    return False


def state_of(unit: Unit, node: ast.Call, owner: ast.expr, kind: Kind) -> None:
    """A state dict of a module that may be the model, or another one."""
    assert isinstance(node.func, ast.Attribute)
    reads = node.func.attr == "state_dict"
    strict = next((one.value for one in node.keywords if one.arg == "strict"), None)
    given = [*node.args, *(one.value for one in node.keywords if one.arg == "state_dict")]
    if strict is None and not reads and len(node.args) == 2:
        strict = given.pop()
    known = len(given) + (strict is not None)
    if len(given) != (0 if reads else 1) or known != len(node.args) + len(node.keywords) or (reads and strict):
        raise Refusal("no-counterpart", "It has an argument that the helper does not take.")
    ours = unit.need("torch.distributed.fsdp.FSDPModule")
    source = unit.source

    def text() -> str:
        model = source.text(owner)
        new = (
            options.get_model(unit, model, kind)
            if reads
            else options.set_model(unit, model, source.text(given[0]), kind, source.text(strict) if strict else "")
        )
        if not alone:
            return f"({new} if isinstance({model}, {ours}) else {source.inside(node)})"
        lines = (f"if isinstance({model}, {ours}):", f"    {new}", "else:", f"    {source.inside(node)}")
        return f"\n{source.indent(statement)}".join(lines)

    statement = unit.statement(node)
    alone = isinstance(statement, ast.Expr) and statement.value is node and source.alone(statement)
    alone = alone and statement.lineno == statement.end_lineno
    text()  # its imports are needed now
    source.replace(node, text)
    unit.use(node, "state dict", node.func.attr, "converted")
