"""Hybrid sharding: the mesh, and what its replicas must have in common (FSD425-428)."""

from __future__ import annotations

import ast

from ..project import File
from ..records import Call, Thing
from ..walk import Walker
from .common import is_true

_SHARD = ("shard", "fsdp")
_OTHERS = ("tp", "cp", "pp", "ep", "sp")


def _shape(thing: Thing) -> tuple[ast.expr | None, ast.expr | None]:
    """The shape and the names that a mesh was made with."""
    node = thing.node
    if thing.kind != "mesh" or not isinstance(node, ast.Call) or not thing.name.endswith("init_device_mesh"):
        return None, None
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    shape = node.args[1] if len(node.args) > 1 else named.get("mesh_shape")
    names = node.args[2] if len(node.args) > 2 else named.get("mesh_dim_names")
    return shape, names


def _used(walker: Walker, call: Call, argument: str) -> None:
    given = call.named.get(argument, ())
    if len(given) != 1:
        return
    shape, names = _shape(given[0])
    if isinstance(shape, (ast.Tuple, ast.List)) and len(shape.elts) == 2:
        walker.fact("hybrid mesh", call.node)
        for note in walker.marks:
            if note.what == "rank seed":
                walker.fact("seeds differ", note.node)
    if not isinstance(names, (ast.Tuple, ast.List)) or len(names.elts) != 2:
        return
    first, second = (str(one.value).lower() if isinstance(one, ast.Constant) else "" for one in names.elts)
    replicates = "repl" in second or second in ("ddp", "dp")
    wrong = any(word in first for word in _SHARD) and "repl" not in first and replicates
    if wrong or (first and second in _OTHERS):
        walker.report("FSD425", call.node, False, first=first, second=second)


def sharded(walker: Walker, call: Call) -> None:
    """fully_shard(module, mesh=…)."""
    if call.argument("mesh") is not None or call.spread():
        walker.fact("with mesh", call.node)
    if call.named.get("mesh"):
        _used(walker, call, "mesh")


def wrapped(walker: Walker, call: Call) -> None:
    """FSDP1 with a device mesh."""
    if is_true(call.argument("sync_module_states", 10)):
        walker.fact("broadcast", call.node)
    if call.named.get("device_mesh"):
        _used(walker, call, "device_mesh")


def seeded(walker: Walker, call: Call) -> None:
    """torch.manual_seed with something of the rank in it."""
    if any(_of_rank(walker, argument) for argument in call.node.args):
        walker.note("rank seed", call.node)


def _of_rank(walker: Walker, node: ast.expr) -> bool:
    return any(
        thing.kind == "rank"
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        for thing in walker.peek(inner)
    )


def buffer(walker: Walker, call: Call) -> None:
    """register_buffer of something that differs over the ranks."""
    if any(_of_rank(walker, argument) for argument in call.node.args[1:]):
        walker.fact("rank buffer", call.node)


def shares(walker: Walker, call: Call) -> None:
    """Something makes the ranks alike, not only when a run is resumed."""
    if not any(one.kind == "" and not one.key.startswith("method ") for one in walker.path):
        walker.fact("broadcast", call.node)


def project(walker: Walker) -> None:
    """What a whole program lacks."""
    facts = walker.facts
    if not facts.get("broadcast"):
        for file, node in facts.get("seeds differ", ()):
            walker.report_at("FSD427", file, node, False)
        if facts.get("fsdp2") or facts.get("fsdp1"):
            for file, node in facts.get("rank buffer", ()):
                walker.report_at("FSD428", file, node, False)
    if facts.get("fsdp2") and not facts.get("hybrid mesh"):
        for file in dict.fromkeys(file for file, _ in facts["fsdp2"]):
            if "hybrid" not in file.text.lower() or _has_mesh(file.text):
                continue
            for inner in ast.walk(file.tree):
                if isinstance(inner, ast.If) and _asks_hybrid(inner.test):
                    words = {"reshard_after_forward", *_reshards(facts["fsdp2"])}
                    place = next(
                        (item for item in inner.body if any(f"'{word}'" in ast.dump(item) for word in words)), None
                    )
                    if place is not None:
                        walker.report_at("FSD426", file, place, False)


def _reshards(calls: list[tuple[File, ast.AST]]) -> set[str]:
    """The names that are given as reshard_after_forward."""
    return {
        keyword.value.id
        for _, call in calls
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "reshard_after_forward" and isinstance(keyword.value, ast.Name)
    }


def _has_mesh(text: str) -> bool:
    """Whether the code makes or passes a mesh, comments and imports aside."""
    lines = (line.partition("#")[0] for line in text.split("\n") if "import" not in line)
    return any("mesh" in line.lower() for line in lines)


def _asks_hybrid(test: ast.expr) -> bool:
    words = ast.dump(test).lower()
    return "hybrid" in words or "hsdp" in words


CALLS = {
    "fully_shard": [sharded],
    "FSDP1": [wrapped],
    "manual_seed": [seeded],
    "broadcast": [shares],
    "broadcast_object_list": [shares],
    "dcp.load": [shares],
    "dcp.set_model_state_dict": [shares],
    "dcp.set_state_dict": [shares],
    "torch.load": [shares],
}
METHODS = {"register_buffer": [buffer], "load_state_dict": [shares]}
PROJECT = [project]
