"""Environment variables that the program sets itself (FSD115, 120, 125, 126, 128, 137)."""

from __future__ import annotations

import ast

from ..records import Call, implied
from ..torch_names import COLLECTIVES
from ..walk import Walker
from .common import replace
from .literals import bound, literal

_RENAMED = frozenset({"NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING"})
# Read while the default group is made, and not again for it.
_AT_INIT = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "GLOO_SOCKET_IFNAME",
        "TORCH_GLOO_LAZY_INIT",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCH_DISTRIBUTED_DEBUG",
    }
)
_NUMBERS = ("get_world_size", "get_rank", "get_node_local_rank", "torch.cuda.device_count", "torch.accelerator")


def assigned(walker: Walker, node: ast.Assign) -> None:
    """``os.environ[NAME] = value``."""
    target = node.targets[0]
    if type(target) is ast.Subscript and walker.full(target.value) == "os.environ":
        name = literal(walker, target.slice)
        if isinstance(name, str):
            variable(walker, name, node.value, target.slice, node)


def default(walker: Walker, call: Call) -> None:
    """``os.environ.setdefault(NAME, value)`` and os.putenv."""
    if len(call.node.args) == 2:
        name = literal(walker, call.node.args[0])
        if isinstance(name, str):
            variable(walker, name, call.node.args[1], call.node.args[0], call.node, call.name == "environ.setdefault")


def update(walker: Walker, call: Call) -> None:
    """``os.environ.update({...})`` and ``os.environ.update(NAME=value)``."""
    for argument in call.node.args:
        if isinstance(argument, ast.Dict):
            for key, value in zip(argument.keys, argument.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    variable(walker, key.value, value, key, value)
    for keyword in call.node.keywords:
        if keyword.arg:
            variable(walker, keyword.arg, keyword.value, keyword.value, keyword.value)


def variable(
    walker: Walker, name: str, value: ast.expr, key: ast.expr, node: ast.AST, default_only: bool = False
) -> None:
    """One variable that is set."""
    if name in _RENAMED:
        edits = replace(key, f'"TORCH_{name}"') if isinstance(key, ast.Constant) and key.value == name else ()
        walker.report("FSD120", node, True, *edits, name=name)
    what = _no_text(walker, value)
    if what:
        edits = replace(value, f"str({walker.source(value)})") if value.lineno == value.end_lineno else ()
        walker.report("FSD125", node, True, *edits, name=name, what=what)
    if not default_only:
        _late(walker, name, node)
    given = literal(walker, value)
    if name == "MASTER_PORT" and not default_only and isinstance(given, (str, int)) and given not in ("0", 0, ""):
        walker.fact("fixed port", node)
    if name == "TORCH_DISTRIBUTED_DEBUG" and isinstance(given, str) and given.upper() not in ("OFF", "INFO", "DETAIL"):
        walker.report("FSD137", node, True, value=given)
    if name in ("RANK", "WORLD_SIZE") and isinstance(given, str) and given.isdigit():
        walker.note(f"env {name} {given}", node)


def _no_text(walker: Walker, value: ast.expr) -> str:
    """What a value is that is surely no text; "" for a text and where it cannot be told."""
    source = bound(walker, value)
    if isinstance(source, ast.Constant):
        kind = type(source.value).__name__
        return "" if isinstance(source.value, str) else f"{kind} {source.value!r}"
    if isinstance(source, ast.Call):
        full = walker.full(source.func)
        if isinstance(source.func, ast.Name) and source.func.id in ("int", "len", "bool") and not full:
            return f"the result of {source.func.id}()"
        if full.startswith("torch.") and full.endswith(_NUMBERS):
            return f"the result of {full.rpartition('.')[2]}()"
    if isinstance(source, (ast.List, ast.Dict, ast.Tuple)):
        return f"a {type(source).__name__.lower()}"
    return ""


def _late(walker: Walker, name: str, node: ast.AST) -> None:
    """After the moment when the variable is read."""
    marks = [mark for mark in walker.marks if implied(mark.path, walker.path)]
    begun = [mark for mark in marks if mark.what == "init"]
    if not begun or any(mark.what == "destroy" and mark.at > begun[-1].at for mark in marks):
        return
    if name in _AT_INIT and "init_rpc" in walker.frame.file.text:
        return  # which reads it again
    if name in _AT_INIT or name.startswith("TORCH_NCCL_"):
        walker.report("FSD126", node, False, name=name, when="init_process_group has read it")
        return
    run = any(event.what in COLLECTIVES and implied(event.path, walker.path) for event in walker.events)
    if run and name.startswith("NCCL_") and name not in _RENAMED:
        walker.report("FSD126", node, False, name=name, when="NCCL has read it, with the first collective")


def ranks(walker: Walker) -> None:
    """RANK and WORLD_SIZE written out: every process that runs this is the same one."""
    fixed = [mark for mark in walker.marks if mark.what.startswith("env RANK ")]
    worlds = [mark for mark in walker.marks if mark.what.startswith("env WORLD_SIZE ")]
    for rank in fixed:
        for world in worlds:
            if rank.path or world.path or not walker.noted("init"):
                continue
            number, size = int(rank.what[9:]), int(world.what[15:])
            if number >= size:
                why = f"ranks of a world of {size} end at {size - 1}"
                walker.report_at("FSD133", rank.file, rank.node, True, why=why)
            elif size > 1:
                walker.report_at("FSD128", rank.file, rank.node, False, rank=str(number))


def project(walker: Walker) -> None:
    """A port that is written out, and processes that the program starts itself."""
    facts = walker.facts
    starters = {file for file, _ in facts.get("spawn", ())}
    for file, node in facts.get("fixed port", ()):
        if file in starters:
            walker.report_at("FSD115", file, node, False)


CALLS = {"environ.setdefault": [default], "environ.update": [update], "putenv": [default]}
ASSIGNED = [assigned]
ENDS = [ranks]
PROJECT = [project]
