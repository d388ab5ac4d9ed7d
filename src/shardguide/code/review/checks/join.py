"""Join and Joinable (FSD6xx): what one call shows is told here, the comparison of iteration and hook comes from the Join check."""

from __future__ import annotations

import ast

from ..records import Call, Things
from ..records import Thing as Thing
from ..walk import Walker
from .common import is_false, is_true, kind_of
from .parts import classes


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
        modules = thing.of if thing.kind == "ddp" else ()
        apart = is_true(call.argument("throw_on_early_termination", 2)) or is_false(call.argument("enable", 1))
        if not apart and any(mark.what == "synchronised" for module in modules for mark in module.marks):
            walker.report("FSD628", call.node, True)
    if isinstance(given, (ast.List, ast.Tuple)) and given.elts:
        _device(walker, call, walker.value(given.elts[0]))
        order = [_what(things_) for element in given.elts if (things_ := walker.value(element)) is not None]
        if "zero" in order and "ddp" in order and order.index("zero") < order.index("ddp"):
            walker.report("FSD603", call.node, True)
        if order == ["ddp", "zero"]:
            walker.report("FSD606", call.node, True)


def synchronised(walker: Walker, call: Call) -> None:
    """convert_sync_batchnorm(module)."""
    walker.mark(call.things("module", 0), "synchronised", call.node)


def _device(walker: Walker, call: Call, first: Things) -> None:
    """The first joinable's device is the CPU; what backends there are is asked at the end."""
    for thing in first if len(first) == 1 else ():
        for _, owner in classes(walker, thing):
            for item in owner.body:
                if isinstance(item, ast.FunctionDef) and item.name == "join_device":
                    given = item.body[-1]
                    text = ast.unparse(given.value) if isinstance(given, ast.Return) and given.value else ""
                    if text in ("torch.device('cpu')", "device('cpu')"):
                        walker.facts.setdefault(f"join on the CPU {owner.name}", []).append(
                            (walker.frame.file, call.node)
                        )
                    return


def on_nccl(walker: Walker) -> None:
    """Join's own all-reduce on the CPU, where no group has a backend for it."""
    told = [name for name in walker.facts if name.startswith("join on the CPU ")]
    if not told or not walker.facts.get("nccl only") or walker.facts.get("other backend"):
        return
    if any("gloo" in file.text for file in walker.project.files):
        return  # a group of its own may have it
    for name in told:
        for file, node in walker.facts[name]:
            walker.report_at("FSD635", file, node, False, name=name.rpartition(" ")[2])


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


def compared(walker: Walker) -> None:
    """Every Joinable against its hook, every Join against its loop."""
    if not any(
        "oinable" in file.text or "Join(" in file.text or ".join(" in file.text for file in walker.project.files
    ):
        return
    from shardguide.code.join import check_project

    said: set[tuple[str, str, int]] = set()
    for verdict in check_project(walker.project):
        for issue in verdict.issues:
            key = (issue.code, issue.file.path, issue.line)
            if key not in said:
                said.add(key)
                walker.report_at(
                    issue.code,
                    issue.file,
                    issue.node,
                    issue.certain and issue.violated,
                    what=issue.what,
                    lacks=issue.what,
                    name=verdict.name,
                )


CALLS = {"Join": [joined], "convert_sync_batchnorm": [synchronised]}
METHODS = {"step": [stepped]}
PROJECT = [compared, on_nccl]
