"""A process group for gradients on the CPU, where parameters are offloaded."""

from __future__ import annotations

import ast

from .unit import Unit

_INIT = ("torch.distributed.init_process_group", "torch.distributed.distributed_c10d.init_process_group")


def give(units: list[Unit]) -> None:
    """Where CPUOffloadPolicy came in, NCCL alone no longer does: clipping is a collective on the CPU."""
    for unit in units:
        if not any(full.endswith(".CPUOffloadPolicy") for full in unit.imports.values()):
            continue
        for other in units:
            if other.group == unit.group and not other.refused:
                for node in ast.walk(other.file.tree):
                    if isinstance(node, ast.Call) and other.full(node.func) in _INIT:
                        _backend(other, node)


def _backend(unit: Unit, node: ast.Call) -> None:
    given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "backend")]
    if not given:
        return  # none is named: each device gets its own
    if isinstance(given[0], ast.Constant) and given[0].value == "nccl":
        unit.source.replace(given[0], '"cpu:gloo,cuda:nccl"')
        unit.use(node, "method", "init_process_group", "converted")
    elif not isinstance(given[0], ast.Constant):
        unit.todo(node, "backend")
