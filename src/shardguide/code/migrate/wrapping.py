"""``with enable_wrap(wrapper_cls=FSDP, …): wrap(module)``: two small functions that do the same for fully_shard."""

from __future__ import annotations

import ast

from . import precision, strategy
from .names import FSDP1, canonical
from .plan import Plan
from .todos import Refusal
from .unit import Unit

_TAKEN = ("sharding_strategy", "device_mesh", "process_group", "cpu_offload", "mixed_precision", "device_id")
_DROPPED = ("use_orig_params", "limit_all_gathers", "forward_prefetch", "backward_prefetch", "device_id")


def convert(unit: Unit) -> None:
    """Change enable_wrap and wrap of a file, all of them or none."""
    contexts = [
        node
        for node in ast.walk(unit.file.tree)
        if isinstance(node, ast.Call) and unit.canon(node.func) == "enable_wrap"
    ]
    wraps = [
        node for node in ast.walk(unit.file.tree) if isinstance(node, ast.Call) and unit.canon(node.func) == "wrap"
    ]
    if not contexts and not wraps:
        return
    elsewhere = [
        other for other in unit.units
        if other is not unit and other.group == unit.group
        and any(canonical(full) in ("wrap", "enable_wrap") for full in other.file.imports.values())
    ]  # fmt: skip
    try:
        if not contexts or elsewhere:
            raise Refusal("no-counterpart", "enable_wrap and wrap stand in different files.")
        try:
            _written_out(unit, contexts, wraps)
        except Refusal:
            _at_run_time(unit, contexts, wraps)
    except Refusal as refusal:
        for node in (*contexts, *wraps):
            unit.made[id(node)] = False
            unit.leave(node, "constructor" if node in contexts else "context", "wrap", refusal)
        unit.constructors.setdefault(unit.group, []).extend([refusal.code] * bool(contexts))
        return
    for node in (*contexts, *wraps):
        unit.made[id(node)] = True
    for node in contexts:
        unit.use(node, "constructor", "enable_wrap", "converted")
        unit.constructors.setdefault(unit.group, []).append("")
        unit.handled.update(id(keyword.value) for keyword in node.keywords if keyword.arg == "wrapper_cls")
    for node in wraps:
        unit.use(node, "context", "wrap", "converted")


def _written_out(unit: Unit, contexts: list[ast.Call], wraps: list[ast.Call]) -> None:
    """enable_wrap's arguments become those of fully_shard."""
    plans = [_context(unit, node) for node in contexts]
    inner = [_wrap(unit, node) for node in wraps]
    if any(plan.hoisted and not unit.source.alone(unit.statement(plan.call)) for plan in plans):
        raise Refusal("expression")
    begin = unit.helper("sharding")
    shard = unit.helper("shard_module")
    for node, plan in zip(contexts, plans, strict=True):
        unit.source.before(unit.statement(node), plan.hoisted)
        unit.source.replace(node, f"{begin}({', '.join(f'{key}={value}' for key, value in plan.child)})")
    for node, overrides in zip(wraps, inner, strict=True):
        unit.source.replace(node.func, shard)
        for keyword, text in overrides:
            unit.source.replace(keyword, text)


def _at_run_time(unit: Unit, contexts: list[ast.Call], wraps: list[ast.Call]) -> None:
    """Arguments that only the run knows, or that work on what is inside of a module: a function takes them as they are."""
    if not unit.target.takes("torch.distributed.fsdp.fully_shard", "ignored_params"):
        raise Refusal("ignored-release")
    for node in contexts:
        given = {keyword.arg: keyword for keyword in node.keywords}
        if "wrapper_cls" not in given or unit.canon(given["wrapper_cls"].value) != FSDP1:
            raise Refusal("class")
    begin = unit.helper("sharding")
    shard = unit.helper("shard_module_as_told")
    for node in contexts:
        parts = [keyword for keyword in node.keywords if keyword.arg != "wrapper_cls"]
        unit.source.replace(
            node,
            lambda parts=parts: f"{begin}({', '.join(unit.source.text(part) for part in parts)})",  # type: ignore[misc]
        )
        unit.todo(node, "arguments-at-run-time")
    for node in wraps:
        unit.source.replace(node.func, shard)


def _context(unit: Unit, node: ast.Call) -> Plan:
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    if len(given) != len(node.keywords) or "wrapper_cls" not in given:
        raise Refusal("arguments")
    if unit.canon(given.pop("wrapper_cls")) != FSDP1:
        raise Refusal("class")
    if any(name not in (*_TAKEN, *_DROPPED) for name in given):
        raise Refusal("no-counterpart", "It has an argument that works on a whole model, not on one module.")
    plan = Plan(unit, node, given)
    strategy.shard(plan)
    strategy.offload(plan)
    precision.precision(plan, nested=True)
    return plan


def _wrap(unit: Unit, node: ast.Call) -> list[tuple[ast.keyword, str]]:
    """Arguments of wrap() itself, which come before those of enable_wrap."""
    if len(node.args) != 1:
        raise Refusal("arguments")
    out: list[tuple[ast.keyword, str]] = []
    for keyword in node.keywords:
        plan = Plan(unit, node, {keyword.arg or "**": keyword.value})
        if keyword.arg == "mixed_precision":
            precision.precision(plan, nested=True)
        elif keyword.arg == "cpu_offload":
            strategy.offload(plan)
        else:
            raise Refusal("no-counterpart", "wrap() has an argument that could not be read.")
        if len(plan.child) != 1 or plan.hoisted:
            raise Refusal("no-counterpart", "wrap() has an argument that could not be read.")
        out.append((keyword, f"{plan.child[0][0]}={plan.child[0][1]}"))
    return out
