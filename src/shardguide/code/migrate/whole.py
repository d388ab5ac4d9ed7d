"""All files of a migration together: constructors first, then what is done with the models they made."""

from __future__ import annotations

import ast

from . import (
    accelerate_plugin,
    arithmetic,
    backends,
    beside,
    constructor,
    earlier,
    leftovers,
    methods,
    order,
    statedicts,
    wrapping,
)
from .names import FSDP1
from .todos import Refusal
from .unit import Unit


def rewrite(units: list[Unit]) -> None:
    """Change what can be changed, and say of every use what became of it."""
    made: dict[int, bool] = {}
    groups: dict[int, list[str]] = {}
    for unit in units:
        unit.made, unit.constructors = made, groups
    beside.sort_out(units)
    for unit in units:
        constructors(unit)
    for unit in units:
        if not unit.refused:
            wrapping.convert(unit)
    open_ = [unit for unit in units if not unit.refused]
    for unit in open_:
        statedicts.settings(unit)
    for unit in open_:
        statedicts.contexts(unit)
        statedicts.calls(unit)
        methods.calls(unit)
        methods.names(unit)
        accelerate_plugin.convert(unit)
        if not (unit.beside and beside.both(unit)):
            earlier.convert(unit)
        order.left_over(unit)
        arithmetic.look(unit)
        leftovers.clear(unit)
        methods.settings(unit)
    backends.give(open_)


def constructors(unit: Unit) -> None:
    """Every FSDP(...) of a file."""
    for node in ast.walk(unit.file.tree):
        if isinstance(node, ast.Call) and unit.canon(node.func) == FSDP1:
            code = ""
            try:
                if unit.refused or id(node) in unit.blocked:
                    raise Refusal(unit.refused or "both")
                constructor.convert(unit, node)
            except Refusal as refusal:
                unit.leave(node, "constructor", "FSDP", refusal)
                code = refusal.code
            else:
                unit.use(node, "constructor", "FSDP", "converted")
                if unit.beside and beside.both(unit):
                    unit.todo(node, "twin")
            unit.made[id(node)] = not code
            unit.constructors.setdefault(unit.group, []).append(code)
