"""Which kind of state dict is meant at a place: by the context around it, by the one around its callers, or by what was set."""

from __future__ import annotations

import ast

from . import options, undo
from .checkpoints import static
from .names import arguments
from .options import DEFAULT, Kind
from .todos import Refusal
from .unit import Unit

_SAVES = ("save", "load", "state", "checkpoint", "ckpt", "restore")
_DEPTH = 3
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def in_force(unit: Unit, node: ast.AST) -> Kind:
    """The kind of a state dict that is read outside of a context."""
    own = [kind for function, line, kind in unit.settings if function is unit.function(node) and line < node.lineno]  # type: ignore[attr-defined]
    if own:
        return own[-1]
    if id(unit.function(node)) in unit.inherited:
        return unit.inherited[id(unit.function(node))]
    kinds = {kind for other in unit.units if other.group == unit.group for _, _, kind in other.settings}
    if len(kinds) > 1:
        raise Refusal("state-dict-type")
    return kinds.pop() if kinds else DEFAULT


def around(unit: Unit, node: ast.AST) -> tuple[str, Kind] | None:
    """The innermost context that a call stands in: the model as written, and the kind."""
    found = None
    for context, model, kind in unit.contexts:
        if any(inner is node for statement in context.body for inner in ast.walk(statement)):
            found = (model, kind)
    return found


def told(unit: Unit, node: ast.AST, owner: ast.expr) -> Kind | None:
    """What set_state_dict_type said of this very model above, in the same block or one around."""
    text, statement = ast.unparse(owner), unit.statement(node)
    out = None
    while True:
        block = unit.block(statement)
        for held, line, model, kind in unit.set_models:
            if held is block and line < statement.lineno and model == text:
                out = kind
        parent = unit.parent(statement)
        if out is not None or not isinstance(parent, (ast.If, ast.With, ast.For, ast.Try)):
            return out
        statement = parent


def inherit(units: list[Unit]) -> None:
    """Functions that are called in contexts alone, all of one kind, get that kind."""
    found: dict[int, list[Kind | None]] = {}
    for unit in units:
        for node in ast.walk(unit.file.tree):
            if isinstance(node, ast.Call):
                function = called(unit, node)
                if function is not None and "state_dict" in ast.unparse(function):
                    found.setdefault(id(function), []).append(_kind_around(unit, node))
    kinds = {key: set(values) for key, values in found.items()}
    inherited = {key: next(iter(one)) for key, one in kinds.items() if len(one) == 1 and None not in one}
    for unit in units:
        unit.inherited = inherited  # type: ignore[assignment]


def _kind_around(unit: Unit, node: ast.Call) -> Kind | None:
    here = unit.parent(node)
    while here is not None and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        for item in here.items if isinstance(here, ast.With) else ():
            if static(unit, item.context_expr) == "state_dict_type":
                back = undo.point(unit)
                try:
                    given = arguments(item.context_expr, "state_dict_type")  # type: ignore[arg-type]
                    return options.kind_of(unit, given) if given is not None else None
                except Refusal:
                    return None
                finally:
                    back()
        here = unit.parent(here)
    return None


def called(unit: Unit, node: ast.Call) -> _Function | None:
    """The function or method of the project that a call calls."""
    definition = unit.definition(node.func)
    if definition is not None:
        return definition.node if isinstance(definition.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
        owner = unit.owner_class(node)
        for one in owner.body if owner is not None else ():
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one.name == node.func.attr:
                return one
    return None


def hands_on(unit: Unit, node: ast.Call, model: str) -> bool:
    """Whether a call in a context reads a state dict where the context would decide, and nothing here says what is to be read."""
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    given = any(ast.unparse(value) == model for value in values if isinstance(value, (ast.Name, ast.Attribute)))
    function = called(unit, node)
    if function is not None:
        by_self = model.startswith("self.") and isinstance(node.func, ast.Attribute)
        if not given and not by_self:
            return False
        return id(function) not in unit.inherited and not _silent(unit, function, _DEPTH)
    if given:
        return True
    text = ast.unparse(node.func)
    own = text.startswith("super()") or (text.startswith("self.") and text.count(".") == 1)
    return own and model.startswith("self.") and any(word in text.lower() for word in _SAVES)


def _silent(unit: Unit, function: _Function, depth: int) -> bool:
    """Whether a function has nothing to do with state dicts, as far as its calls can be followed."""
    owner = unit.owner(function)
    if owner is None or depth < 0:
        return False
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if static(owner, node) or (isinstance(node.func, ast.Attribute) and node.func.attr.endswith("state_dict")):
            return False
        further = called(owner, node)
        if further is not None and further is not function and not _silent(owner, further, depth - 1):
            return False
    return True
