"""State dicts: contexts of state_dict_type are taken away, and what stood in them becomes calls of the DCP helpers."""

from __future__ import annotations

import ast

from . import checkpoints, options
from .checkpoints import static
from .names import arguments
from .narrow import narrowed
from .options import DEFAULT, Kind
from .todos import Refusal
from .unit import Unit

_HARMLESS = frozenset({"print", "len", "isinstance", "type", "str", "id", "getattr", "hasattr", "list", "dict"})
_READ = {
    "optim_state_dict": None,
    "full_optim_state_dict": Kind("True", "True", "True"),
    "sharded_optim_state_dict": Kind("False", "False", "False"),
}
_LOAD = (
    "optim_state_dict_to_load",
    "scatter_full_optim_state_dict",
    "shard_full_optim_state_dict",
    "flatten_sharded_optim_state_dict",
)


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
        unit.drop(statement)
        unit.todo(node, "state-dict-type")
        if kind.local:
            unit.todo(node, "local-state-dict")
        unit.use(node, "state dict", "set_state_dict_type", "converted")


def in_force(unit: Unit, node: ast.AST) -> Kind:
    """The kind of a state dict that is read outside of a context."""
    own = [kind for function, line, kind in unit.settings if function is unit.function(node) and line < node.lineno]  # type: ignore[attr-defined]
    if own:
        return own[-1]
    kinds = {kind for other in unit.units if other.group == unit.group for _, _, kind in other.settings}
    if len(kinds) > 1:
        raise Refusal("state-dict-type")
    return kinds.pop() if kinds else DEFAULT


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
            values = [*inner.args, *(keyword.value for keyword in inner.keywords)]
            if any(ast.unparse(value) == model for value in values if isinstance(value, (ast.Name, ast.Attribute))):
                raise Refusal("state-dict-type")


def around(unit: Unit, node: ast.AST) -> tuple[str, Kind] | None:
    """The innermost context that a call stands in: the model as written, and the kind."""
    found = None
    for context, model, kind in unit.contexts:
        if any(inner is node for statement in context.body for inner in ast.walk(statement)):
            found = (model, kind)
    return found


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
            elif name in _LOAD:
                _load(unit, node, name)
            elif name == "load_sharded_optimizer_state_dict":
                checkpoints.load_sharded(unit, node)
            elif unit.full(node.func) in checkpoints.OLD:
                renamed.append(node)
            elif name == "get_state_dict_type" or name == "rekey_optim_state_dict":
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
        inside = around(unit, node)
        kind = inside[1] if inside is not None else in_force(unit, node)
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


def _load(unit: Unit, node: ast.Call, name: str) -> None:
    """State dicts made ready for an optimizer: the call and the load_state_dict after it become one call."""
    given = arguments(node, name)
    if given is None:
        raise Refusal("arguments")
    # Up to 2.0 the state dict came first.
    state = given.get("optim_state_dict", given.get("full_optim_state_dict", given.get("sharded_optim_state_dict")))
    model, optimizer = given.get("model"), given.get("optim")
    if name == "optim_state_dict_to_load" and len(node.args) == 3 and not node.keywords:
        first = unit.reading.kinds(node.args[0])
        if "state" in ast.unparse(node.args[0]).lower() and "fsdp1" not in first:
            state, model, optimizer = node.args
    if state is None or model is None:
        raise Refusal("arguments")
    inside = around(unit, node)
    kind = inside[1] if inside is not None else in_force(unit, node)
    more = ""
    if name == "scatter_full_optim_state_dict":
        kind, more = DEFAULT, "broadcast_from_rank0=True"
        if not unit.target.takes(f"{options.STATE}.StateDictOptions", "broadcast_from_rank0"):
            raise Refusal("release", f"PyTorch {unit.target.release} cannot broadcast a state dict.")
    elif name == "shard_full_optim_state_dict":
        kind = DEFAULT
    elif name == "flatten_sharded_optim_state_dict":
        kind = Kind("False", "False", "False")
    parent = unit.parent(node)
    loading = (
        parent if isinstance(parent, ast.Call) and node in (*parent.args, *(k.value for k in parent.keywords)) else None
    )
    statement = unit.statement(node)
    source = unit.source
    if loading is None:
        if not (
            isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name)
        ):
            raise Refusal("optimizer-state")
        loading = _loaded(unit, statement, statement.targets[0].id)
    if loading is None or not _loads(loading):
        raise Refusal("optimizer-state")
    owner = loading.func.value  # type: ignore[attr-defined]
    if optimizer is None:
        optimizer = owner
    if ast.unparse(optimizer) != ast.unparse(owner):
        raise Refusal("optimizer-state")
    options.set_optimizer(unit, "", "", "", kind, more)
    the_model, the_state = model, state

    steps = unit.helper("own_steps") if kind.full != "False" else ""

    def text() -> str:
        given_state = source.text(the_state)
        if steps:
            given_state = f"{steps}({given_state})"
        return options.set_optimizer(unit, source.text(the_model), source.text(owner), given_state, kind, more)

    source.replace(loading, text)
    if statement is not unit.statement(loading):
        unit.drop(statement)
    unit.handled.add(id(loading))
    unit.todo(node, "checkpoints")
    unit.use(node, "state dict", name, "converted")


def _loads(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict" and len(node.args) == 1


def _loaded(unit: Unit, statement: ast.stmt, name: str) -> ast.Call | None:
    """The call optimizer.load_state_dict(name) after a statement in the same block, where it is the only use of the name."""
    function = unit.function(statement)
    loads = [
        node for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]  # fmt: skip
    loads = [node for node in loads if node.lineno > statement.lineno]
    stores = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    if len(loads) != 1 or len(stores) > 1 or not unit.source.alone(statement):
        return None
    call = unit.parent(loads[0])
    if not isinstance(call, ast.Call) or unit.statement(call) not in unit.block(statement):
        return _further_out(unit, statement, call)
    return call


def _further_out(unit: Unit, statement: ast.stmt, call: ast.AST | None) -> ast.Call | None:
    """A call after the with statement whose body ends with the statement."""
    outer = unit.parent(statement)
    if isinstance(outer, ast.With) and isinstance(call, ast.Call) and unit.statement(call) in unit.block(outer):
        return call
    return None


def _model(unit: Unit, node: ast.Call, function: ast.Attribute) -> None:
    """Calls of state_dict and load_state_dict on a model."""
    owner = function.value
    inside = around(unit, node)
    stays = any(part is node for context in unit.stays for part in ast.walk(context))
    if stays and inside is None and unit.is_fsdp1(owner):
        raise Refusal("state-dict-type")  # what kind is meant stands in the context
    if inside is not None and ast.unparse(owner) == inside[0]:
        kind = inside[1]
    elif unit.is_fsdp1(owner):
        of = narrowed(unit, owner)
        if of == "other":
            return
        kind = in_force(unit, node)
        if "ddp" in unit.reading.kinds(owner) and not of:
            if kind.full != "False" or function.attr != "state_dict":
                raise Refusal("ddp-too")
            unit.use(node, "state dict", function.attr, "kept", "sharded-as-it-is")  # DTensors, without communication
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
    return "group" not in given or _is_none(given["group"])


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
