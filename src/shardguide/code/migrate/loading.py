"""Optimizer states of FSDP1 made ready for loading: that call and the load_state_dict of its result become one call."""

from __future__ import annotations

import ast
from collections.abc import Callable

from shardguide.guidance.hints import NamedTuple

from . import inside, leftovers, options
from .checkpoints import static
from .names import arguments
from .options import DEFAULT, Kind
from .plan import simple
from .todos import Refusal
from .unit import Unit

NAMES = (
    "optim_state_dict_to_load",
    "scatter_full_optim_state_dict",
    "shard_full_optim_state_dict",
    "flatten_sharded_optim_state_dict",
)


def convert(unit: Unit, node: ast.Call, name: str) -> None:
    """State dicts made ready for an optimizer: the call and the load_state_dict after it become one call."""
    given = arguments(node, name)
    if given is None:
        raise Refusal("arguments")
    # Up to 2.0 the state dict came first.
    state = given.get("optim_state_dict", given.get("full_optim_state_dict", given.get("sharded_optim_state_dict")))
    model, optimizer = given.get("model"), given.get("optim")
    if name == "optim_state_dict_to_load" and len(node.args) == 3 and not node.keywords and _state_first(unit, node):
        state, model, optimizer = node.args
    if state is None or model is None:
        raise Refusal("arguments")
    held = inside.around(unit, node)
    kind = held[1] if held is not None else inside.in_force(unit, node)
    more = ""
    if name == "scatter_full_optim_state_dict":
        kind, more = DEFAULT, "broadcast_from_rank0=True"
        if not unit.target.takes(f"{options.STATE}.StateDictOptions", "broadcast_from_rank0"):
            raise Refusal("release", f"PyTorch {unit.target.release} cannot broadcast a state dict.")
    elif name == "shard_full_optim_state_dict":
        kind = DEFAULT
    elif name == "flatten_sharded_optim_state_dict":
        kind = Kind("False", "False", "False")
    asked = Asked(node, name, model, state, optimizer, kind, more)
    parent = unit.parent(node)
    if isinstance(parent, ast.Call) and node in (*parent.args, *(k.value for k in parent.keywords)):
        _merge(unit, asked, parent)
    else:
        _by_name(unit, asked)
    unit.todo(node, "checkpoints")
    unit.use(node, "state dict", name, "converted")


def _state_first(unit: Unit, node: ast.Call) -> bool:
    """Whether the arguments are in the order of 2.0: the state dict, the model, the optimizer."""
    first, _, last = (ast.unparse(one).lower().rpartition(".")[2] for one in node.args)
    if "fsdp1" in unit.reading.kinds(node.args[0]) or "optimizer" in unit.reading.kinds(node.args[1]):
        return False
    return "state" in first or "optimizer" in unit.reading.kinds(node.args[2]) or last in ("optim", "optimizer", "opt")


class Asked(NamedTuple):
    """One such call: what it is given, and the kind of state dict that it means."""

    node: ast.Call
    name: str
    model: ast.expr
    state: ast.expr
    optimizer: ast.expr | None
    kind: Kind
    more: str


def _by_name(unit: Unit, asked: Asked) -> None:
    """``ready = FSDP.optim_state_dict_to_load(…)``: what becomes of it hangs on where ``ready`` is loaded."""
    statement = unit.statement(asked.node)
    if (
        not isinstance(statement, ast.Assign)
        or statement.value is not asked.node
        or len(statement.targets) != 1
        or not isinstance(statement.targets[0], ast.Name)
        or not unit.source.alone(statement)
    ):
        raise Refusal("optimizer-state")
    name = statement.targets[0].id
    uses = [
        one for one in ast.walk(unit.function(statement))
        if isinstance(one, ast.Name) and one.id == name and one.lineno > (statement.end_lineno or 0)
    ]  # fmt: skip
    loads = [one for one in uses if isinstance(one.ctx, ast.Load)]
    if not loads and not any(isinstance(one.ctx, ast.Store) for one in uses):
        _never_loaded(unit, asked, statement, name)
        return
    call = unit.parent(loads[0]) if len(loads) == 1 else None
    if not isinstance(call, ast.Call) or not _loads(call):
        raise Refusal("optimizer-state")
    where = unit.statement(call)
    outer = unit.parent(statement)
    if isinstance(outer, ast.If) and where not in unit.block(statement):
        if _either(unit, asked, statement, outer, call):
            return
    elif _after(unit, statement, where) and not _changed_between(unit, asked, statement, where, name):
        _merge(unit, asked, call)
        unit.drop(statement)
        leftovers.forget(unit, statement, name)
        return
    _pass_on(unit, asked, call, name)


def _after(unit: Unit, statement: ast.stmt, where: ast.stmt) -> bool:
    """Whether a statement comes after another in its block, or after the with statement around that."""
    outer = unit.parent(statement)
    return where in unit.block(statement) or (isinstance(outer, ast.With) and where in unit.block(outer))


def _never_loaded(unit: Unit, asked: Asked, statement: ast.stmt, name: str) -> None:
    """Nothing reads the result: without the call the program does what it did."""
    if not all(simple(one) for one in (*asked.node.args, *(k.value for k in asked.node.keywords))):
        raise Refusal("optimizer-state")
    unit.todo(asked.node, "never-loaded")
    unit.drop(statement)
    leftovers.forget(unit, statement, name)


def _merge(unit: Unit, asked: Asked, call: ast.Call) -> None:
    """``optimizer.load_state_dict(…)`` becomes set_optimizer_state_dict."""
    owner = _optimizer(asked, call)
    source = unit.source
    text = _text(unit, asked, owner, lambda: _steps(unit, asked)(source.text(asked.state)))
    source.replace(call, text)
    unit.handled.add(id(call))


def _either(unit: Unit, asked: Asked, statement: ast.Assign, outer: ast.If, call: ast.Call) -> bool:
    """``if sharded: ready = FSDP.…(ready)`` and then ``optimizer.load_state_dict(ready)``: that is for the other case now."""
    where, block, source = unit.statement(call), unit.block(outer), unit.source
    following = block[block.index(outer) + 1 :]
    if outer.body[-1] is not statement or not following or following[0] is not where:
        return False
    if not isinstance(where, ast.Expr) or where.value is not call or not source.alone(where):
        return False
    if where.lineno != where.end_lineno or (outer.orelse and not source.alone(outer.orelse[-1])):
        return False
    if outer.orelse and outer.orelse[0].col_offset == outer.col_offset:  # elif
        return False
    owner = _optimizer(asked, call)
    source.replace(statement, _text(unit, asked, owner, lambda: _steps(unit, asked)(source.text(asked.state))))
    if outer.orelse:
        source.after(outer.orelse[-1], [lambda: source.inside(where)])
        source.cut(source.starts[where.lineno - 1], source.starts[where.lineno])
    else:
        indent = source.indent(where)
        source.replace(where, lambda: f"else:\n{indent}    {source.inside(where)}")
    unit.handled.add(id(call))
    return True


def _pass_on(unit: Unit, asked: Asked, call: ast.Call, name: str) -> None:
    """The name keeps the state as it is; where it is loaded, it is made ready as well."""
    stores = [
        one for one in ast.walk(unit.function(asked.node))
        if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
    ]  # fmt: skip
    made = [getattr(unit.statement(one), "value", None) for one in stores]
    words = {ast.unparse(one) for one in (asked.model,)}
    for one in made:
        if static(unit, one) != asked.name:  # type: ignore[arg-type]
            raise Refusal("optimizer-state")
        if not words & {ast.unparse(value) for value in ast.walk(one) if isinstance(value, ast.expr)}:  # type: ignore[arg-type]
            raise Refusal("optimizer-state")
    owner, source = _optimizer(asked, call), unit.source
    source.replace(asked.node, lambda: _steps(unit, asked)(source.text(asked.state)))
    _steps(unit, asked)
    source.replace(call, _text(unit, asked, owner, lambda: source.text(call.args[0])))
    unit.handled.add(id(call))


def _optimizer(asked: Asked, call: ast.Call) -> ast.expr:
    """The optimizer that loads, which must be the one that the state was made ready for. Raises Refusal."""
    if not _loads(call):
        raise Refusal("optimizer-state")
    owner: ast.expr = call.func.value  # type: ignore[attr-defined]
    if asked.optimizer is not None and ast.unparse(asked.optimizer) != ast.unparse(owner):
        raise Refusal("optimizer-state")
    return owner


def _steps(unit: Unit, asked: Asked) -> Callable[[str], str]:
    """A state with a step count for each parameter, where it may be a file of FSDP1."""
    helper = unit.helper("own_steps") if asked.kind.full != "False" else ""
    return lambda text: f"{helper}({text})" if helper else text


def _text(unit: Unit, asked: Asked, owner: ast.expr, state: Callable[[], str]) -> Callable[[], str]:
    source = unit.source

    def text() -> str:
        model = source.text(asked.model)
        return options.set_optimizer(unit, model, source.text(owner), state(), asked.kind, asked.more)

    text()  # its imports are needed now
    return text


def _changed_between(unit: Unit, asked: Asked, first: ast.stmt, last: ast.stmt, name: str) -> bool:
    """Whether something that the state is made of gets another value, or is deleted, before it is loaded."""
    names = {one.id for one in ast.walk(asked.state) if isinstance(one, ast.Name)} - {name}
    return any(
        isinstance(one, ast.Name) and one.id in names and not isinstance(one.ctx, ast.Load)
        and (first.end_lineno or 0) < one.lineno < last.lineno
        for one in ast.walk(unit.function(first))
    )  # fmt: skip


def _loads(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict" and len(node.args) == 1
