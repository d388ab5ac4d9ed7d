"""Values of the parameters at the start: the meta device, param_init_fn, sync_module_states."""

from __future__ import annotations

import re

from .plan import Plan, simple
from .strategy import device_type

_META = re.compile(
    r"""device\s*\(\s*["']meta["']|device\s*=\s*["']meta["']|init_empty_weights|init_on_device|\.to\(\s*["']meta["']"""
)


def initialise(plan: Plan) -> None:
    """What comes before and after sharding for param_init_fn and sync_module_states."""
    unit = plan.unit
    sync = plan.given.get("sync_module_states")
    condition = ""
    if sync is not None and plan.constant("sync_module_states") not in (None, False):
        condition = "True" if plan.constant("sync_module_states") is True else plan.text(sync)
        if condition != "True" and not simple(sync):
            condition = plan.hoist("sync_module_states", condition)
    state = ""
    if condition:
        state = unit.fresh("full_state", plan.call)
        plan.before.append(
            f"{state} = {plan.subject}.state_dict()" + ("" if condition == "True" else f" if {condition} else None")
        )
    _materialise(plan)
    if condition:
        assert sync is not None
        unit.todo(sync, "sync-module-states")
        group = f", {plan.group}" if plan.group else ""
        line = f"{unit.helper('broadcast_from_rank0')}({plan.subject}, {state}{group})"
        plan.after.extend([line] if condition == "True" else [f"if {condition}:", f"    {line}"])
        plan.after.append(f"del {state}")


def _materialise(plan: Plan) -> None:
    node = plan.given.get("param_init_fn")
    given = node is not None and plan.constant("param_init_fn") is not None
    if not given and not _META.search(plan.unit.near):
        return
    kind = device_type(plan) or "cuda"
    device = f'"{kind}"'
    init = plan.text(node) if node is not None and given else "None"
    helper = plan.unit.helper("materialize")
    offload = f", offload={plan.offloaded}" if plan.offloaded and kind != "cpu" else ""
    plan.after.insert(0, f"{helper}({plan.subject}, {init}, {device}{offload})")
    plan.unit.todo(node if node is not None else plan.call, "initialisation")
