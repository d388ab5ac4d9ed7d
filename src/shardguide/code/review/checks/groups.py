"""Process groups: set-up, devices, tear-down (FSD1xx)."""

from __future__ import annotations

import ast

from ..records import Call, Things, implied
from ..torch_names import NEED_GROUP, short
from ..walk import Walker
from .common import constant, drop_argument, is_true, replace

_CONTEXTS = {"FSDP1.summon_full_params", "FSDP1.state_dict_type", "Join"}


def init(walker: Walker, call: Call) -> None:
    """init_process_group: backend, method, order."""
    node = call.node
    backend, method = constant(call.argument("backend", 0)), constant(call.argument("init_method", 1))
    walker.fact("init", node)
    if call.argument("world_size", 3) is None:  # else it may be a group of some of the processes, as with RPC
        walker.event("FSD117", "init_process_group", node)
    if call.argument("device_id") is not None or call.spread():
        walker.fact("device", node)
    nccl = backend == "nccl" or (isinstance(backend, str) and "nccl" in backend)
    if nccl:
        walker.fact("nccl", node)
    if backend == "nccl":
        walker.fact("nccl only", node)
    elif backend is not None or not node.args:
        walker.fact("other backend", node)
    walker.fact(f"backend {backend}", node)
    earlier = [mark for mark in walker.marks if mark.what == "init" and implied(mark.path, walker.path)]
    torn = [mark for mark in walker.marks if mark.what in ("destroy", "asked")]
    if earlier and not torn and not any(one.kind == "except" for one in walker.path):
        walker.report("FSD110", node)
    walker.note("init", node)
    given = call.argument("timeout", 2)
    if isinstance(given, ast.Constant) and isinstance(given.value, (int, float)) and not isinstance(given.value, bool):
        walker.report("FSD111", given, True, *replace(given, f"datetime.timedelta(seconds={given.value})"))
    if isinstance(method, str) and method.startswith("file://"):
        walker.report("FSD107", node, False)
    if isinstance(method, str) and method.startswith("tcp://") and "?" not in method and not call.spread():
        lacks = [name for at, name in ((3, "world_size"), (4, "rank")) if call.argument(name, at) is None]
        if lacks:
            walker.report("FSD108", node, True, lacks=" and ".join(lacks))
    if call.argument("group_name") is not None:
        walker.report("FSD109", node, True, *drop_argument(call, "group_name"))
    for thing in call.named.get("rank", ()):
        if thing.kind in ("unknown", "rank", "local_rank") and not thing.sure:
            thing.kind, thing.sure = "rank", True


def device(walker: Walker, call: Call) -> None:
    """set_device: by which rank, and when."""
    walker.fact("device", call.node)
    things = call.args[0] if call.args else ()
    if any(thing.kind == "rank" and thing.sure and thing.name in ("get_rank()", "RANK") for thing in things):
        walker.report("FSD101", call.node, False)
    collective = any(event.what != "init_process_group" and implied(event.path, walker.path) for event in walker.events)
    if collective and walker.noted("init") and not walker.noted("device") and walker.facts.get("nccl"):
        walker.report("FSD103", call.node, False)
    walker.note("device", call.node)


def needs_group(walker: Walker, call: Call) -> None:
    """Whatever needs a process group."""
    walker.note("use", call.node)


def asked(walker: Walker, call: Call) -> None:
    """is_initialized() and the like: the program takes care itself."""
    walker.note("asked", call.node)


def destroy(walker: Walker, call: Call) -> None:
    """destroy_process_group."""
    walker.fact("destroy", call.node)
    walker.note("destroy", call.node)


def new_group(walker: Walker, call: Call) -> None:
    """new_group must be called by all ranks, of the group or not."""
    given = call.argument("use_local_synchronization")
    if given is None or not is_true(given):
        walker.event("FSD116", "new_group", call.node)
    timeout = call.argument("timeout", 1)
    if isinstance(timeout, ast.Constant) and isinstance(timeout.value, (int, float)):
        walker.report("FSD111", timeout, True, *replace(timeout, f"datetime.timedelta(seconds={timeout.value})"))


def statement(walker: Walker, node: ast.Call, things: Things) -> None:
    """A context manager that is made and not entered."""
    name = short(walker.full(node.func))
    if name == "device_index":
        function = node.func
        edits = replace(function, walker.source(function).replace("device_index", "set_device_index"))
        walker.report("FSD104", node, True, *(edits if "(" not in edits[0].text else ()))
    elif name in _CONTEXTS:
        walker.report("FSD105", node, True, what=name.replace("FSDP1", "FSDP"))
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ("no_sync", "join"):
        owners = walker.value(node.func.value)
        known = [owner for owner in owners if owner.kind in ("ddp", "fsdp1")]
        if known and len(known) == len(owners):
            walker.report("FSD105", node, True, what=f"{node.func.attr}()")


def arguments(walker: Walker, call: Call) -> None:
    """--local_rank, which torchrun does not pass and the old launcher spells with a dash."""
    names = [constant(argument) for argument in call.node.args]
    if "--local_rank" in names and "--local-rank" not in names:
        argument = call.node.args[names.index("--local_rank")]
        edits = replace(argument, '"--local-rank", "--local_rank"') if len(names) == 1 else ()
        walker.report("FSD114", call.node, False, *edits)


def before_init(walker: Walker) -> None:
    """A use of the group on the way to its initialisation."""
    marks = walker.marks
    for mark in marks:
        if mark.what != "init" or mark.path:
            continue
        for use in marks:
            if use.at < mark.at and use.what == "use" and not use.path:
                if not any(one.what in ("init", "asked") and one.at < mark.at for one in marks):
                    walker.report_at("FSD113", use.file, use.node, True)
                break
        break


def project(walker: Walker) -> None:
    """What a whole program lacks."""
    facts = walker.facts
    if facts.get("elsewhere"):
        return
    if not facts.get("device"):
        for file, node in facts.get("nccl only", ()):
            walker.report_at("FSD102", file, node, False)
    if not facts.get("destroy"):
        for file, node in facts.get("init", ())[:1]:
            if facts.get("script"):
                walker.report_at("FSD106", file, node, False)


CALLS = {
    "init_process_group": [init],
    "set_device": [device],
    "is_initialized": [asked],
    "destroy_process_group": [destroy],
    "new_group": [new_group],
    **{name: [needs_group] for name in NEED_GROUP if name != "new_group"},
}
METHODS = {"add_argument": [arguments], "()": []}
DROPPED = [statement]
ENDS = [before_init]
PROJECT = [project]
