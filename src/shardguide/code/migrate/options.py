"""StateDictOptions for what FSDP1 said by state dict types and their configurations."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING, NamedTuple

from .names import arguments
from .todos import Refusal

if TYPE_CHECKING:
    from .unit import Unit

STATE = "torch.distributed.checkpoint.state_dict"


class Kind(NamedTuple):
    """What kind of state dict is meant, as expressions."""

    full: str  # full_state_dict: "True", "False", or an expression
    model: str  # cpu_offload when the model's is read
    optimizer: str  # cpu_offload when the optimizer's is read
    local: bool = False


DEFAULT = Kind("True", "False", "False")  # FSDP1's own: the full state dict, on every rank


def kind_of(unit: Unit, given: dict[str, ast.expr]) -> Kind:
    """The kind that the arguments of state_dict_type or set_state_dict_type mean. Raises Refusal."""
    node = given.get("state_dict_type")
    if node is None:
        raise Refusal("state-dict-type")
    bound = unit.bound(node)
    name = unit.canon(bound).partition(".")[2] if bound is not None else ""
    model, optimizer = given.get("state_dict_config"), given.get("optim_state_dict_config")
    if name == "FULL_STATE_DICT":
        return Kind("True", _offload(unit, model, True), _offload(unit, optimizer, True))
    if name in ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT"):
        return Kind("False", _offload(unit, model, False), _offload(unit, optimizer, False), name[0] == "L")
    text = unit.source.text(node)
    types = unit.need("torch.distributed.fsdp.StateDictType")
    return Kind(f"{text} == {types}.FULL_STATE_DICT", _offload(unit, model, True), _offload(unit, optimizer, True))


def _offload(unit: Unit, node: ast.expr | None, full: bool) -> str:
    """cpu_offload of the helpers. For full state dicts it means rank 0 only, so both must have been said."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return "False"
    bound = unit.bound(node)
    if isinstance(bound, ast.Call) and unit.canon(bound.func):
        name = unit.canon(bound.func)
        given = arguments(bound, name)
        if given is None:
            raise Refusal("state-dict-type")
        default = "True" if "Optim" in name else "False"
        to_cpu = _text(unit, given.get("offload_to_cpu")) or default
        if not full:
            return to_cpu
        rank0 = _text(unit, given.get("rank0_only")) or "False"
        if "False" in (to_cpu, rank0):
            if to_cpu != "False":
                unit.todo(node, "all-ranks-state-dict")
            return "False"
        return "True" if to_cpu == rank0 == "True" else " and ".join(one for one in (to_cpu, rank0) if one != "True")
    text = unit.source.text(node)
    if "\n" in text:
        raise Refusal("state-dict-type")
    return f'getattr({text}, "rank0_only", False) and {text}.offload_to_cpu'


def _text(unit: Unit, node: ast.expr | None) -> str:
    return unit.source.text(node) if node is not None else ""


def options(unit: Unit, kind: Kind, offload: str, more: str = "") -> str:
    """``, options=StateDictOptions(...)`` for a call, "" where the defaults are meant."""
    parts = []
    if kind.full != "False":
        parts.append(f"full_state_dict={kind.full}")
    if offload != "False":
        parts.append(f"cpu_offload={offload}")
    if more:
        parts.append(more)
    if not parts:
        return ""
    return f", options={unit.need(f'{STATE}.StateDictOptions')}({', '.join(parts)})"


def get_model(unit: Unit, model: str, kind: Kind) -> str:
    """Read the model's state dict."""
    return f"{unit.need(f'{STATE}.get_model_state_dict')}({model}{options(unit, kind, kind.model)})"


def set_model(unit: Unit, model: str, state: str, kind: Kind, strict: str) -> str:
    """Load the model's state dict."""
    more = f"strict={strict}" if strict and strict != "True" else ""
    return f"{unit.need(f'{STATE}.set_model_state_dict')}({model}, {state}{options(unit, kind, 'False', more)})"


def get_optimizer(unit: Unit, model: str, optimizer: str, kind: Kind) -> str:
    """Read the optimizer's state dict."""
    name = unit.need(f"{STATE}.get_optimizer_state_dict")
    return f"{name}({model}, {optimizer}{options(unit, kind, kind.optimizer)})"


def set_optimizer(unit: Unit, model: str, optimizer: str, state: str, kind: Kind, more: str = "") -> str:
    """Load the optimizer's state dict."""
    name = unit.need(f"{STATE}.set_optimizer_state_dict")
    return f"{name}({model}, {optimizer}, optim_state_dict={state}{options(unit, kind, 'False', more)})"
