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
    inside,
    leftovers,
    methods,
    order,
    references,
    statedicts,
    undo,
    wrapping,
)
from .aliases import is_partial
from .names import FSDP1
from .todos import Refusal
from .unit import Unit


def rewrite(units: list[Unit]) -> None:
    """Change what can be changed, and say of every use what became of it."""
    made: dict[int, bool] = {}
    groups: dict[int, list[str]] = {}
    early: set[int] = set()
    grouped: set[int] = set()
    for unit in units:
        unit.made, unit.constructors, unit.early, unit.grouped = made, groups, early, grouped
    beside.sort_out(units)
    for unit in units:
        constructors(unit)
    for unit in units:
        calls_of_partials(unit)
    for unit in units:
        if not unit.refused:
            wrapping.convert(unit)
    inside.inherit(units)
    open_ = [unit for unit in units if not unit.refused]
    for unit in open_:
        statedicts.settings(unit)
    for unit in open_:
        statedicts.contexts(unit)
        statedicts.calls(unit)
        methods.calls(unit)
        references.convert(unit)
        order.tests(unit)
        methods.names(unit)
        accelerate_plugin.convert(unit)
        if not (unit.beside and beside.both(unit)):
            earlier.convert(unit)
        order.left_over(unit)
        arithmetic.look(unit)
        leftovers.clear(unit)
        leftovers.names_of_the_class(unit)
        methods.settings(unit)
    backends.give(open_)


def constructors(unit: Unit) -> None:
    """Every FSDP(...) of a file, and every functools.partial of it."""
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Call):
            continue
        partial = is_partial(unit.reading.aliases, unit.file, node)
        if not partial and unit.canon(node.func) != FSDP1:
            continue
        code = ""
        back = undo.point(unit)
        try:
            if unit.refused or id(node) in unit.blocked:
                raise Refusal(unit.refused or "both")
            if partial:
                constructor.partial(unit, node)
            else:
                constructor.convert(unit, node)
        except Refusal as refusal:
            back()
            unit.leave(node, "constructor", "FSDP", refusal)
            code = refusal.code
        else:
            unit.use(node, "constructor", "FSDP", "converted")
            if unit.beside and beside.both(unit):
                unit.todo(node, "twin")
        if partial:
            unit.handled.update(id(one) for one in ast.walk(node.args[0]))
        unit.made[id(node)] = not code
        unit.constructors.setdefault(unit.group, []).append(code)


def calls_of_partials(unit: Unit) -> None:
    """What a functools.partial of FSDP1 wraps is as the partial is: converted, or left."""
    for node in ast.walk(unit.file.tree):
        if not isinstance(node, ast.Call):
            continue
        given = unit.reading.aliases.partial(unit.file, node.func)
        if given is not None:
            unit.made[id(node)] = unit.made.get(id(given), False)
            if unit.made[id(node)] and not unit.refused:
                constructor.called(unit, node)
