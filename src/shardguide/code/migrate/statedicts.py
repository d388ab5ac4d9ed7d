"""State dicts: contexts of state_dict_type are taken away, and what stood in them becomes calls of the DCP helpers."""

from __future__ import annotations

import ast

from . import checkpoints, inside, items, loading, options
from .checkpoints import static
from .names import arguments
from .narrow import narrowed
from .options import Kind
from .todos import Refusal
from .unit import Unit

_HARMLESS = frozenset({"print", "len", "isinstance", "type", "str", "id", "getattr", "hasattr", "list", "dict"})
_READ = {
    "optim_state_dict": None,
    "full_optim_state_dict": Kind("True", "True", "True"),
    "sharded_optim_state_dict": Kind("False", "False", "False"),
}


def settings(unit: Unit) -> None:
    """set_state_dict_type: remembered for the group, and taken away."""
    for node in ast.walk(unit.file.tree):
        if static(unit, node) != "set_state_dict_type" or id(node) in unit.handled:
            continue
        assert isinstance(node, ast.Call)
        given = arguments(node, "state_dict_type")
        statement = unit.statement(node)
        try:
            if given is None or not isinstance(statement, ast.Expr) or not unit.source.alone(statement):
                raise Refusal("state-dict-type")
            kind = options.kind_of(unit, given)
        except Refusal as refusal:
            unit.leave(node, "state dict", "set_state_dict_type", refusal)
            continue
        unit.spent.extend(value for name, value in given.items() if name != "module")
        unit.settings.append((unit.function(node), node.lineno, kind))
        if "module" in given:
            unit.set_models.append((unit.block(statement), node.lineno, ast.unparse(given["module"]), kind))
        unit.drop(statement)
        unit.todo(node, "state-dict-type")
        if kind.local:
            unit.todo(node, "local-state-dict")
        unit.use(node, "state dict", "set_state_dict_type", "converted")


def contexts(unit: Unit) -> None:
    """Every ``with FSDP.state_dict_type(…)``."""
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.With):
            continue
        for item in node.items:
            if id(item.context_expr) in unit.handled:
                continue
            if static(unit, item.context_expr) == "state_dict_type" or unit.is_method(
                item.context_expr, "state_dict_type"
            ):
                try:
                    _context(unit, node, item)
                except Refusal as refusal:
                    unit.leave(item.context_expr, "context", "state_dict_type", refusal)
                    unit.stays.append(node)
                else:
                    unit.use(item.context_expr, "context", "state_dict_type", "converted")


def _context(unit: Unit, node: ast.With, item: ast.withitem) -> None:
    call = item.context_expr
    assert isinstance(call, ast.Call)
    given = arguments(call, "state_dict_type")
    if given is not None and "module" not in given and isinstance(call.func, ast.Attribute):
        given["module"] = call.func.value
    if given is None or "module" not in given or item.optional_vars is not None:
        raise Refusal("state-dict-type")
    kind = options.kind_of(unit, given)
    model = ast.unparse(given["module"])
    _understood(unit, node, model)
    if kind.local:
        unit.todo(call, "local-state-dict")
    if "False" not in (kind.full, kind.model) and unit.group in unit.grouped:
        unit.todo(call, "rank-of-group")
    unit.contexts.append((node, model, kind))
    unit.spent.extend(value for name, value in given.items() if name != "module")
    unit.remove_item(node, item)


def _understood(unit: Unit, node: ast.With, model: str) -> None:
    """Refuse a body that hands the model on: what is read of it there, the context would decide."""
    for statement in node.body:
        for inner in ast.walk(statement):
            if not isinstance(inner, ast.Call):
                continue
            name = static(unit, inner)
            if name in _READ and not _takes(arguments(inner, name) or {"group": inner}):
                raise Refusal("state-dict-type")  # a half of it would not do
            if name or unit.full(inner.func).startswith(("torch.", "os.")):
                continue
            if isinstance(inner.func, ast.Name) and inner.func.id in _HARMLESS:
                continue
            if inside.hands_on(unit, inner, model):
                raise Refusal("state-dict-type")
            if isinstance(inner.func, ast.Attribute) and inner.func.attr in ("state_dict", "load_state_dict"):
                owner = inner.func.value
                if ast.unparse(owner) != model and items.any_item(unit, owner) and not items.module(unit, owner):
                    raise Refusal("state-dict-type")  # it may be the model


def calls(unit: Unit) -> None:
    """Every state dict that is read or loaded."""
    renamed: list[ast.Call] = []
    own: list[ast.Call] = []
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Call) or id(node) in unit.handled:
            continue
        name = static(unit, node)
        try:
            if name in _READ:
                _read(unit, node, name)
            elif name in loading.NAMES:
                loading.convert(unit, node, name)
            elif name == "load_sharded_optimizer_state_dict":
                checkpoints.load_sharded(unit, node)
            elif unit.full(node.func) in checkpoints.OLD:
                renamed.append(node)
            elif name == "rekey_optim_state_dict":
                unit.use(node, "state dict", name, "kept", "any-module")  # it only writes other keys, for any module
            elif name == "get_state_dict_type":
                raise Refusal("no-counterpart")
            elif (
                not name
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("state_dict", "load_state_dict")
            ):
                own.append(node)
                _model(unit, node, node.func)
        except Refusal as refusal:
            what = name or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
            unit.leave(node, "state dict", what, refusal)
    for node in own:
        place = unit.source.span(node)[0]
        if id(node) not in unit.handled and not any(start <= place < end for start, end in unit.source.spans):
            _own_optimizer(unit, node)
    for node in renamed:
        function = unit.function(node)
        first, last = getattr(function, "lineno", 1), getattr(function, "end_lineno", None) or len(unit.source.lines)
        if any(first <= use.line <= last and use.kind in ("state dict", "context") for use in unit.uses):
            checkpoints.renamed(unit, node)


def _own_optimizer(unit: Unit, node: ast.Call) -> None:
    """The optimizer's own state dict holds flat shards under FSDP1, and DTensors under FSDP2: files of before do not load."""
    assert isinstance(node.func, ast.Attribute)
    optimizer = node.func.value
    things = unit.reading.things(optimizer)
    owners = [owner for thing in things for part in thing.of for owner in (part, *part.of) if owner.kind == "fsdp1"]
    codes = unit.constructors.get(unit.group, ())
    named = ast.unparse(optimizer).rpartition(".")[2] in ("optimizer", "optim", "opt")
    if any(unit.made.get(id(owner.node), False) for owner in owners) or (
        not things and named and codes and not any(codes) and not unit.beside
    ):
        unit.todo(node, "optimizer-files")


def _read(unit: Unit, node: ast.Call, name: str) -> None:
    given = arguments(node, name)
    if given is None or "model" not in given or "optim" not in given:
        raise Refusal("arguments")
    if not _takes(given):
        raise Refusal("no-counterpart", "It has an argument that the helper does not take.")
    kind = _READ[name]
    if kind is None:
        held = inside.around(unit, node)
        kind = held[1] if held is not None else inside.in_force(unit, node)
    elif name == "full_optim_state_dict" and "rank0_only" in given:
        rank0 = unit.source.text(given["rank0_only"])
        kind = kind._replace(optimizer=rank0)
    model, optimizer = given["model"], given["optim"]
    made = kind
    unit.source.replace(
        node,
        lambda: options.get_optimizer(unit, unit.source.text(model), unit.source.text(optimizer), made),
    )
    options.get_optimizer(unit, "", "", made)  # its imports are needed now
    unit.todo(node, "checkpoints")
    unit.use(node, "state dict", name, "converted")


def _model(unit: Unit, node: ast.Call, function: ast.Attribute) -> None:
    """Calls of state_dict and load_state_dict on a model."""
    owner = function.value
    held = inside.around(unit, node)
    stays = any(part is node for context in unit.stays for part in ast.walk(context))
    if stays and held is None and unit.is_fsdp1(owner):
        raise Refusal("state-dict-type")  # what kind is meant stands in the context
    if held is not None and ast.unparse(owner) == held[0]:
        kind = held[1]
    elif unit.is_fsdp1(owner):
        of = narrowed(unit, owner)
        if of == "other":
            return
        kind = inside.in_force(unit, node)
        if "ddp" in unit.reading.kinds(owner) and not of:
            if kind.full != "False" or function.attr != "state_dict":
                items.state_of(unit, node, owner, kind)
                return
            unit.use(node, "state dict", function.attr, "kept", "sharded-as-it-is")  # DTensors, without communication
            return
    elif (told := inside.told(unit, node, owner)) is not None:
        kind = told
    elif held is not None and items.any_item(unit, owner) and items.module(unit, owner):
        items.state_of(unit, node, owner, held[1])
        return
    else:
        return
    source, name = unit.source, function.attr
    if name == "state_dict":
        if node.args or node.keywords:
            raise Refusal("no-counterpart", "It has an argument that the helper does not take.")
        options.get_model(unit, "", kind)
        source.replace(node, lambda: options.get_model(unit, source.text(owner), kind))
    else:
        given = {"state_dict": node.args[0]} if node.args else {}
        given.update(dict(zip(("strict",), node.args[1:], strict=False)))
        given.update({keyword.arg or "**": keyword.value for keyword in node.keywords})
        if "state_dict" not in given or not set(given) <= {"state_dict", "strict"}:
            raise Refusal("no-counterpart", "It has an argument that the helper does not take.")
        state, strict = given["state_dict"], given.get("strict")
        options.set_model(unit, "", "", kind, "")
        source.replace(
            node,
            lambda: options.set_model(
                unit, source.text(owner), source.text(state), kind, source.text(strict) if strict is not None else ""
            ),
        )
    unit.use(node, "state dict", name, "converted")


def _takes(given: dict[str, ast.expr]) -> bool:
    """Whether the helper that reads an optimizer's state can do what these arguments say."""
    state = given.get("optim_state_dict")
    if state is not None and not _is_none(state):  # optimizer.state_dict() is what it takes by itself
        optimizer = given.get("optim")
        if optimizer is None or ast.unparse(state) != f"{ast.unparse(optimizer)}.state_dict()":
            return False
    return True  # its group is that of the mesh


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
