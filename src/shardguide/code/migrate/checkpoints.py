"""Functions of torch.distributed.checkpoint that came with FSDP1 and are deprecated, and FSDP1's static methods by name."""

from __future__ import annotations

import ast

from . import options
from .names import FSDP1, arguments
from .options import Kind
from .todos import Refusal
from .unit import Unit

OLD = (
    "torch.distributed.checkpoint.save_state_dict", "torch.distributed.checkpoint.load_state_dict",
    "torch.distributed.checkpoint.state_dict_saver.save_state_dict",
    "torch.distributed.checkpoint.state_dict_loader.load_state_dict",
)  # fmt: skip
_DCP = {
    "save_state_dict": (
        "save",
        ("state_dict", "storage_writer", "process_group", "coordinator_rank", "no_dist", "planner"),
    ),
    "load_state_dict": (
        "load",
        ("state_dict", "storage_reader", "process_group", "coordinator_rank", "no_dist", "planner"),
    ),
}


def static(unit: Unit, node: ast.AST) -> str:
    """The name of FSDP1's static method that a call calls; "" for any other."""
    if not isinstance(node, ast.Call):
        return ""
    name = unit.canon(node.func)
    if name.startswith(f"{FSDP1}."):
        return name.rpartition(".")[2]
    return name if name == "load_sharded_optimizer_state_dict" else ""


def renamed(unit: Unit, node: ast.Call) -> None:
    """save_state_dict and load_state_dict of torch.distributed.checkpoint, which are deprecated for save and load."""
    old = unit.full(node.func).rpartition(".")[2]
    new, order = _DCP[old]
    given: dict[str, ast.expr] = dict(zip(order, node.args, strict=False))
    given.update({keyword.arg or "**": keyword.value for keyword in node.keywords})
    if "state_dict" not in given or len(given) != len(node.args) + len(node.keywords) or not set(given) <= set(order):
        return  # still there, and nothing of FSDP1's
    if "coordinator_rank" in given or any(isinstance(one, ast.Starred) for one in node.args):
        return
    name = unit.need(f"torch.distributed.checkpoint.{new}")
    source = unit.source
    for position, value in enumerate(node.args[1:], 1):
        start = source.span(value)[0]
        source.cut(start, start, f"{order[position]}=")
    source.replace(node.func, name)
    unit.use(node, "checkpoint", old, "converted")


def load_sharded(unit: Unit, node: ast.Call) -> None:
    """load_sharded_optimizer_state_dict: the state is read into what the optimizer has."""
    given = arguments(node, "load_sharded_optimizer_state_dict")
    statement = unit.statement(node)
    if given is None or not {"optimizer_key", "storage_reader"} <= set(given) or not isinstance(statement, ast.Assign):
        raise Refusal("optimizer-state")
    if statement.value is not node or not isinstance(statement.targets[0], ast.Name):
        raise Refusal("optimizer-state")
    used = _used_by(unit, node, statement.targets[0].id)
    if used is None:
        raise Refusal("optimizer-state")
    model, optimizer = used
    reader, key, name = given["storage_reader"], given["optimizer_key"], statement.targets[0].id
    load = unit.need("torch.distributed.checkpoint.load")
    kind = Kind("False", "False", "False")
    options.get_optimizer(unit, "", "", kind)
    source = unit.source
    planner = f", planner={source.text(given['planner'])}" if "planner" in given else ""
    source.replace(
        node,
        lambda: (
            f"{{{source.text(key)}: {options.get_optimizer(unit, source.text(model), source.text(optimizer), kind)}}}"
        ),
    )
    indent = source.indent(statement)
    context = unit.contexts_of(statement)
    if context:
        indent = source.indent(context[0])
    source.at_line(
        (statement.end_lineno or 0) + 1, [f"{load}({name}, storage_reader={source.text(reader)}{planner})"], indent
    )
    unit.use(node, "state dict", "load_sharded_optimizer_state_dict", "converted")
    if "model_state_dict" in given:
        for inner in ast.walk(given["model_state_dict"]):
            unit.handled.add(id(inner))


def _used_by(unit: Unit, node: ast.Call, name: str) -> tuple[ast.expr, ast.expr] | None:
    """Model and optimizer of the optim_state_dict_to_load that gets what is loaded here."""
    for call in ast.walk(unit.function(node)):
        if static(unit, call) in ("optim_state_dict_to_load", "flatten_sharded_optim_state_dict"):
            assert isinstance(call, ast.Call)
            if not any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(call)):
                continue
            given = arguments(call, static(unit, call)) or {}
            pair = [given.get("model"), given.get("optim")]
            if "state" in ast.unparse(call.args[0]).lower() if call.args else False:
                pair = list(call.args[1:3])
            if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
                return pair[0], pair[1]
    return None
