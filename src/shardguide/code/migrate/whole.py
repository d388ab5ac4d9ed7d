"""All files of a migration together: constructors first, then what is done with the models they made."""

from __future__ import annotations

import ast
import re

from . import (
    accelerate_plugin,
    backends,
    checkpoints,
    constructor,
    earlier,
    leftovers,
    methods,
    order,
    statedicts,
    wrapping,
)
from .names import FSDP1, canonical
from .todos import Refusal
from .unit import Unit

_ASKS = re.compile("fsdp_?2|fsdp_version", re.IGNORECASE)
_NEW = ("fully_shard", "FSDPModule")


def rewrite(units: list[Unit]) -> None:
    """Change what can be changed, and say of every use what became of it."""
    made: dict[int, bool] = {}
    groups: dict[int, list[str]] = {}
    for unit in units:
        unit.made, unit.constructors = made, groups
    kept = {unit.group for unit in units if both(unit)}
    for unit in units:
        if both(unit) or (unit.group in kept and not wraps(unit)):
            unit.refused = "both"
    for unit in units:
        if unit.group in kept and not unit.refused and leans_on(unit):
            unit.refused = "both"
    for unit in units:
        constructors(unit)
    for unit in units:
        if not unit.refused:
            wrapping.convert(unit)
    open_ = [unit for unit in units if not unit.refused]
    for unit in units:
        if unit.refused:
            listed(unit)
    for unit in open_:
        statedicts.settings(unit)
    for unit in open_:
        statedicts.contexts(unit)
        statedicts.calls(unit)
        methods.calls(unit)
        methods.names(unit)
        accelerate_plugin.convert(unit)
        earlier.convert(unit)
        order.left_over(unit)
        leftovers.clear(unit)
        methods.settings(unit)
    backends.give(open_)


def both(unit: Unit) -> bool:
    """Whether a file has FSDP1 and FSDP2 side by side, or asks which of them it has to do with."""
    if "FullyShardedDataParallel" not in unit.file.text and "FSDP" not in unit.file.text:
        return False
    if not any(canonical(full) == FSDP1 for full in unit.file.imports.values()):
        return False
    for node in ast.walk(unit.file.tree):
        word = (
            node.id if isinstance(node, ast.Name)
            else node.attr if isinstance(node, ast.Attribute)
            else node.arg or "" if isinstance(node, (ast.keyword, ast.arg))
            else node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 16
            else ""
        )  # fmt: skip
        if word in _NEW or _ASKS.search(word):
            return True
    return any(full.rpartition(".")[2] in _NEW for full in unit.file.imports.values())


def leans_on(unit: Unit) -> bool:
    """Whether a file takes something from a file that stays as it is."""
    kept = {id(other.file) for other in unit.units if other.refused}
    for name in unit.file.imports:
        found = unit.project.resolve(unit.file, name)
        if not isinstance(found, str) and id(found.file) in kept:
            return True
    return False


def wraps(unit: Unit) -> bool:
    """Whether a file has an FSDP1 constructor call of its own."""
    return any(isinstance(node, ast.Call) and unit.canon(node.func) == FSDP1 for node in ast.walk(unit.file.tree))


def listed(unit: Unit) -> None:
    """The uses of a file in which nothing is changed."""
    for node in ast.walk(unit.file.tree):
        name = checkpoints.static(unit, node)
        if name:
            unit.leave(node, "state dict", name, Refusal(unit.refused))
        elif isinstance(node, ast.Call) and unit.canon(node.func) in ("ShardedGradScaler", "enable_wrap"):
            unit.leave(node, "class", unit.canon(node.func), Refusal(unit.refused))


def constructors(unit: Unit) -> None:
    """Every FSDP(...) of a file."""
    for node in ast.walk(unit.file.tree):
        if isinstance(node, ast.Call) and unit.canon(node.func) == FSDP1:
            code = ""
            try:
                if unit.refused:
                    raise Refusal(unit.refused)
                constructor.convert(unit, node)
            except Refusal as refusal:
                unit.leave(node, "constructor", "FSDP", refusal)
                code = refusal.code
            else:
                unit.use(node, "constructor", "FSDP", "converted")
            unit.made[id(node)] = not code
            unit.constructors.setdefault(unit.group, []).append(code)
