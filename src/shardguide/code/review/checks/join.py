"""Join and Joinable (FSD6xx): the first checks; the comparison of iteration and hook is its own."""

from __future__ import annotations

import ast

from ..project import Definition, dotted_text
from ..records import Call, Thing, Things
from ..walk import Walker
from .common import kind_of

_MEMBERS = ("join_hook", "join_device", "join_process_group")


def joined(walker: Walker, call: Call) -> None:
    """Join([…])."""
    given = call.argument("joinables", 0)
    things = call.things("joinables", 0)
    if isinstance(given, (ast.List, ast.Tuple)) and not given.elts:
        walker.report("FSD602", call.node, True)
    for thing in things:
        if thing.kind == "fsdp1" or kind_of((thing,), "fsdp2", walker) == "yes":
            walker.report("FSD601", call.node, True)
            return
    if isinstance(given, (ast.List, ast.Tuple)):
        order = [_what(things_) for element in given.elts if (things_ := walker.value(element)) is not None]
        if "zero" in order and "ddp" in order and order.index("zero") < order.index("ddp"):
            walker.report("FSD603", call.node, True)
        if order == ["ddp", "zero"]:
            walker.report("FSD606", call.node, True)


def _what(things: Things) -> str:
    if len(things) != 1:
        return ""
    thing = things[0]
    if thing.kind == "ddp":
        return "ddp"
    return "zero" if _zero(thing) else ""


def _zero(thing: Thing) -> bool:
    return thing.kind == "optimizer" and thing.name.endswith("ZeroRedundancyOptimizer")


def stepped(walker: Walker, call: Call) -> None:
    """A ZeroRedundancyOptimizer that steps inside a Join that doesn't know it."""
    if not any(_zero(thing) for thing in call.owner):
        return
    for name, node, _ in walker.contexts:
        if name == "Join" and isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.List):
            inside = [thing for element in node.args[0].elts for thing in walker.value(element)]
            if inside and not any(owner in inside for owner in call.owner) and all(t.kind == "ddp" for t in inside):
                walker.report("FSD604", call.node, True)


def members(walker: Walker) -> None:
    """A class derived from Joinable lacks one of its members."""
    for file in walker.project.files:
        if "Joinable" not in file.text:
            continue
        for node in file.classes.values():
            if not any(_is(walker, file, base) for base in node.bases) or not _all_known(walker, file, node):
                continue
            have = {item.name for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
            have |= {
                target.id
                for item in node.body
                if isinstance(item, ast.Assign)
                for target in item.targets
                if isinstance(target, ast.Name)
            }
            lacks = [name for name in _MEMBERS if name not in have]
            if lacks:
                walker.report_at("FSD605", file, node, True, lacks=", ".join(lacks))


def _is(walker: Walker, file: object, base: ast.expr) -> bool:
    found = walker.project.resolve(file, dotted_text(base))  # type: ignore[arg-type]
    return isinstance(found, str) and found.startswith("torch.distributed.") and found.endswith(".Joinable")


def _all_known(walker: Walker, file: object, node: ast.ClassDef) -> bool:
    for base in node.bases:
        found = walker.project.resolve(file, dotted_text(base)) if dotted_text(base) else ""  # type: ignore[arg-type]
        if isinstance(found, Definition) or not found.startswith(("torch.", "abc.")):
            return False
        if found.endswith(("DistributedDataParallel", "ZeroRedundancyOptimizer")):
            return False
    return True


CALLS = {"Join": [joined]}
METHODS = {"step": [stepped]}
PROJECT = [members]
