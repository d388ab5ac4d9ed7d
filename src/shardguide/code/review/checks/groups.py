"""Process groups: set-up, devices, tear-down (FSD1xx)."""

from __future__ import annotations

import ast
import re

from ..project import File, dotted_text
from ..records import Call, Edit, Things, implied
from ..torch_names import NEED_GROUP, short
from ..walk import Walker
from .common import constant, drop_argument, is_false, replace
from .literals import literal
from .parts import Programs, in_tests

_CONTEXTS = {"FSDP1.summon_full_params", "FSDP1.state_dict_type", "Join"}


def init(walker: Walker, call: Call) -> None:
    """init_process_group: backend, method, order."""
    node = call.node
    backend, method = literal(walker, call.argument("backend", 0)), literal(walker, call.argument("init_method", 1))
    walker.fact("init", node)
    if call.argument("world_size", 3) is None:  # else it may be a group of some of the processes, as with RPC
        walker.event("FSD117", "init_process_group", node)
    if call.argument("device_id") is not None or call.spread():
        walker.fact("device", node)
    nccl = backend == "nccl" or (isinstance(backend, str) and "nccl" in backend)
    if nccl:
        walker.fact("nccl", node)
    if backend in ("nccl", "cuda:nccl"):
        walker.fact("nccl only", node)
    elif backend is not None or call.argument("backend", 0) is None:
        walker.fact("other backend", node)
    walker.fact(f"backend {backend}", node)
    earlier = [mark for mark in walker.marks if mark.what == "init" and implied(mark.path, walker.path)]
    torn = [mark for mark in walker.marks if mark.what in ("destroy", "asked")]
    looked = "GroupMember.WORLD" in walker.frame.file.text or "group.WORLD" in walker.frame.file.text
    if earlier and not torn and not looked and not any(one.kind == "except" for one in walker.path):
        walker.report("FSD110", node, len(walker.path) <= max(len(mark.path) for mark in earlier))
    walker.note("init", node)
    given = call.argument("timeout", 2)
    if isinstance(given, ast.Constant) and isinstance(given.value, (int, float)) and not isinstance(given.value, bool):
        walker.report("FSD111", given, True, *_span(walker, given, given.value))
    if isinstance(method, str) and method.startswith("file:///"):
        walker.report("FSD107", node, False)
    if isinstance(method, str) and method.startswith(("tcp://", "file:///")) and "?" not in method:
        lacks = [name for at, name in ((3, "world_size"), (4, "rank")) if call.argument(name, at) is None]
        if lacks and not call.spread():
            walker.report("FSD108", node, True, lacks=" and ".join(lacks), method=method.partition(":")[0])
    if call.argument("group_name") is not None:
        walker.report("FSD109", node, True, *drop_argument(call, "group_name"))
    for thing in call.named.get("rank", ()):
        if thing.kind in ("unknown", "rank", "local_rank") and not thing.sure:
            thing.kind, thing.sure = "rank", True


def _span(walker: Walker, node: ast.expr, seconds: float) -> tuple[Edit, ...]:
    """The edit that makes a timedelta of a number, with an import where the file has none yet."""
    imports = walker.frame.file.imports
    if imports.get("timedelta") == "datetime.timedelta":
        return replace(node, f"timedelta(seconds={seconds})")
    edits = replace(node, f"datetime.timedelta(seconds={seconds})")
    if imports.get("datetime") == "datetime":
        return edits
    first = next((one for one in walker.frame.file.tree.body if isinstance(one, (ast.Import, ast.ImportFrom))), None)
    if first is None or "datetime" in imports or getattr(first, "module", "") == "__future__":
        return ()
    return (Edit(first.lineno, 0, first.lineno, 0, "import datetime\n"), *edits)


def device(walker: Walker, call: Call) -> None:
    """set_device: by which rank, and when."""
    walker.fact("device", call.node)
    things = call.args[0] if call.args else ()
    by_rank = any(thing.kind == "rank" and thing.sure and thing.name in ("get_rank()", "RANK") for thing in things)
    if by_rank and not in_tests(walker.frame.file):  # tests start all their ranks on one machine
        walker.report("FSD101", call.node, False)
    # NCCL's communicators are made with the first collective; init_process_group and new_group make none.
    collective = any(
        event.what not in ("init_process_group", "new_group") and implied(event.path, walker.path)
        for event in walker.events
    )
    if collective and walker.noted("init") and not walker.noted("device") and walker.facts.get("nccl"):
        walker.report("FSD103", call.node, False)
    walker.note("device", call.node)


def needs_group(walker: Walker, call: Call) -> None:
    """Whatever needs a process group."""
    given = call.argument("num_replicas", 1) is not None and call.argument("rank", 2) is not None
    if call.name == "DistributedSampler" and (given or call.spread()):
        return
    early = not walker.stack and not walker.unknown
    if early and call.name in ("get_rank", "get_world_size"):
        if any(mark.what in ("init", "asked") for mark in walker.marks):
            early = False
        if early:
            walker.note("import", call.node)
    walker.note("use", call.node)
    _torn(walker, call)


def _torn(walker: Walker, call: Call) -> None:
    """A use after the default group was destroyed."""
    marks = [mark for mark in walker.marks if mark.what in ("init", "destroy", "asked")]
    if marks and marks[-1].what == "destroy" and implied(marks[-1].path, walker.path) and not walker.path:
        walker.report("FSD131", call.node, True, what=call.name)


def asked(walker: Walker, call: Call) -> None:
    """is_initialized() and the like: the program takes care itself."""
    walker.note("asked", call.node)


def of_some(walker: Walker) -> bool:
    """Whether only the ranks that get here have a process group, as trainers beside a parameter server: the others need not come."""
    ranks = {one.key for mark in walker.marks if mark.what == "init" for one in mark.path if one.kind == "rank"}
    return any(one.key in ranks for one in walker.path)


def destroy(walker: Walker, call: Call) -> None:
    """destroy_process_group."""
    walker.fact("destroy", call.node)
    if not call.node.args and not call.node.keywords:
        walker.note("destroy", call.node)
        if not of_some(walker):
            walker.event("FSD132", "destroy_process_group", call.node, False)


def new_group(walker: Walker, call: Call) -> None:
    """new_group must be called by all ranks, of the group or not."""
    given = call.argument("use_local_synchronization", 4)
    if given is None or is_false(given):
        walker.event("FSD116", "new_group", call.node, not call.spread())
    timeout = call.argument("timeout", 1)
    if isinstance(timeout, ast.Constant) and isinstance(timeout.value, (int, float)):
        walker.report("FSD111", timeout, True, *_span(walker, timeout, timeout.value))


def statement(walker: Walker, node: ast.Call, things: Things) -> None:
    """A context manager that is made and not entered."""
    name = short(walker.full(node.func))
    if name == "device_index":
        function = node.func
        edits = replace(function, walker.source(function).replace("device_index", "set_device_index"))
        # Under a test of what is there too: where the name exists, it is a context manager.
        walker.report("FSD104", node, True, *(edits if "(" not in edits[0].text else ()), guarded=True)
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
    if "--local_rank" in names and "--local-rank" not in names and not _passed(walker):
        argument = call.node.args[names.index("--local_rank")]
        edits = replace(argument, '"--local-rank", "--local_rank"') if len(names) == 1 else ()
        walker.report("FSD114", call.node, False, *edits)


def _passed(walker: Walker) -> bool:
    """Whether the argument is of use all the same: DeepSpeed's launcher passes it, LOCAL_RANK is read beside it, no PyTorch is near."""
    files = walker.project.files
    if any("LOCAL_RANK" in one.text for one in files) and not any(
        "torch.distributed.launch" in one.text for one in files
    ):
        return True
    imported = {full.partition(".")[0] for one in files for full in one.imports.values()}
    return "deepspeed" in imported or not imported & {"torch", "accelerate", "transformers", "lightning"}


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


def imported(walker: Walker) -> None:
    """The rank is asked for while a module is imported, and nothing in it has initialised anything."""
    if not any(mark.what in ("init", "asked") for mark in walker.marks):
        for mark in walker.marks:
            if mark.what == "import":
                walker.report_at("FSD130", mark.file, mark.node, False)


def defaults(walker: Walker) -> None:
    """The rank as the default of a parameter or in the body of a class: asked for when the module is imported."""
    for file in walker.project.files:
        if "get_rank(" not in file.text and "get_world_size(" not in file.text:
            continue
        values = [value for one in file.functions.values() for value in (*one.args.defaults, *one.args.kw_defaults)]
        for owner in file.classes.values():
            values += [item.value for item in owner.body if isinstance(item, (ast.Assign, ast.AnnAssign))]
        for value in values:
            if isinstance(value, ast.Call):
                full = walker.project.resolve(file, dotted_text(value.func)) if dotted_text(value.func) else ""
                if isinstance(full, str) and short(full) in ("get_rank", "get_world_size"):
                    walker.report_at("FSD130", file, value, False)


# A program that makes itself one process.
_SINGLE = re.compile(r"""["']WORLD_SIZE["']\]?\s*[=,:]\s*["']1["']""")


def project(walker: Walker) -> None:
    """What a whole program lacks; of a folder with many programs each is looked at for itself."""
    facts = walker.facts
    defaults(walker)
    if not facts.get("init"):
        return
    programs = Programs(walker.project)
    there = {what: {file for file, _ in facts.get(what, ())} for what in ("elsewhere", "device", "script")}
    # What is there but was not followed counts too.
    ended = {file for file in walker.project.files if "destroy_process_group" in file.text}
    single = {file for file in walker.project.files if _SINGLE.search(file.text)}
    told: set[File] = set()
    for file, node in facts["init"]:
        around = programs.around(file)
        if around & there["elsewhere"]:
            continue
        if not around & (there["device"] | single) and any(one is node for _, one in facts.get("nccl", ())):
            walker.report_at("FSD102", file, node, False)
        if not around & ended and around & there["script"] and not around & told:
            told.add(file)
            walker.report_at("FSD106", file, node, False)


CALLS = {
    "init_process_group": [init],
    "set_device": [device],
    "is_initialized": [asked],
    "destroy_process_group": [destroy],
    "new_group": [new_group],
    **{name: [needs_group] for name in (*NEED_GROUP, "DistributedSampler") if name != "new_group"},
}
METHODS = {"add_argument": [arguments], "()": []}
DROPPED = [statement]
ENDS = [before_init, imported]
PROJECT = [project]
