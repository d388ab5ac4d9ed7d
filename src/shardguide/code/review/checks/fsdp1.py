"""FullyShardedDataParallel, FSDP1 (FSD3xx)."""

from __future__ import annotations

import ast

from ..project import dotted_text
from ..records import Call, Edit, Thing, Things, marked
from ..walk import Walker
from .common import add_argument, is_false, is_true, kind_of, last, models, replace
from .parts import all_parts, classes, leaf


def wrapped(walker: Walker, call: Call) -> None:
    """FSDP(module, …)."""
    node, inner = call.node, call.things("module", 0)
    walker.fact("fsdp1", node)
    strategy = last(walker, call.argument("sharding_strategy", 2))
    if strategy == "NO_SHARD":
        walker.report("FSD305", node, True, guarded=True)
    if strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2") and _alone(call.things("device_mesh", 15)):
        walker.report("FSD318", node, True)
    policy = call.argument("auto_wrap_policy", 4)
    none = policy is None or (isinstance(policy, ast.Constant) and policy.value is None)
    nested = walker.inside("enable_wrap")
    whole = inner and all(
        thing.kind in ("module", "unknown") and not leaf(thing) and not _parts_wrapped(thing, walker) for thing in inner
    )
    given = call.argument("module", 0)
    if isinstance(given, ast.Attribute) and "." in dotted_text(given).removeprefix("self."):
        whole = False  # model.layer = FSDP(model.layer): a part by hand
    if whole and none and not call.spread() and not nested and strategy != "NO_SHARD" and not walker.loop_depth:
        walker.report("FSD303", node, False)
    if is_true(call.argument("sync_module_states", 10)) and not call.spread() and call.argument("device_id", 9) is None:
        moved = any(mark.what in ("method to", "method cuda", "escaped") for thing in inner for mark in thing.marks)
        if not moved:
            walker.report("FSD304", node, False)
    original = call.argument("use_orig_params", 13)
    for optimizer in walker.made:
        if optimizer.kind != "optimizer" or optimizer.node is None:
            continue
        for model in models(optimizer.of):
            if model in inner or any(within_any(model, thing) for thing in inner):
                here = walker.made_before(optimizer)
                sure = original is None or is_false(original)
                guarded = any(condition.kind == "guard" for condition in walker.path)
                if here is not None and not call.spread() and not is_true(original) and not guarded:
                    home = optimizer.home(walker.frame.file)
                    walker.report_at("FSD302", home, optimizer.node, sure and here and len(inner) == 1)
    walker.mark(inner, "wrapped", node)


def _alone(meshes: Things) -> bool:
    """Whether a mesh has two dimensions, and one rank in the second."""
    if len(meshes) != 1 or meshes[0].kind != "mesh" or not isinstance(meshes[0].node, ast.Call):
        return False
    made = meshes[0].node
    named = [one.value for one in made.keywords if one.arg == "mesh_shape"]
    shape = named[0] if named else made.args[1] if len(made.args) > 1 else None
    if not dotted_text(made.func).endswith("init_device_mesh") or not isinstance(shape, ast.Tuple):
        return False
    last_ = shape.elts[-1]
    return len(shape.elts) == 2 and isinstance(last_, ast.Constant) and last_.value == 1


def within_any(thing: Thing, whole: Thing) -> bool:
    """Whether a thing is a part of another."""
    return thing is whole


def _parts_wrapped(thing: Thing, walker: Walker) -> bool:
    inner = list(all_parts(thing))
    if any(part.kind == "fsdp1" or any(mark.what == "wrapped" for mark in part.marks) for part in inner):
        return True
    return any(
        marked(one, "escaped", walker.path) != "no" or _wraps_inside(walker, one)
        for one in (thing, *(part for part in inner if part.attrs))
    )


def _wraps_inside(walker: Walker, thing: Thing) -> bool:
    """Whether its class wraps parts in its own code."""
    return any(
        isinstance(inner, ast.Call)
        and dotted_text(inner.func).rpartition(".")[2] in ("FSDP", "FullyShardedDataParallel", "wrap", "auto_wrap")
        for _, node in classes(walker, thing)
        for inner in ast.walk(node)
    )


def clipped(walker: Walker, call: Call) -> None:
    """torch.nn.utils.clip_grad_norm_ sees one rank's shards of an FSDP1 model."""
    things = models(call.things("parameters", 0))
    if kind_of(things, "fsdp1", walker) == "yes" and not all(_whole(thing) for thing in things):
        edits: tuple[Edit, ...] = ()
        first = call.node.args[0] if call.node.args else None
        if isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and len(call.node.args) == 2:
            model, bound = walker.source(first.func.value), walker.source(call.node.args[1])
            if not call.node.keywords and not first.args:
                edits = replace(call.node, f"{model}.clip_grad_norm_({bound})")
        walker.report("FSD301", call.node, not any(_replicated(thing, walker) for thing in things), *edits)


def _whole(thing: Thing) -> bool:
    """Whether the strategy is NO_SHARD in so many words."""
    node = thing.node
    return isinstance(node, ast.Call) and any(
        keyword.arg == "sharding_strategy" and ast.dump(keyword.value).find("'NO_SHARD'") >= 0
        for keyword in node.keywords
    )


def _replicated(thing: Thing, walker: Walker) -> bool:
    node = thing.node
    if not isinstance(node, ast.Call):
        return True
    for keyword in node.keywords:
        if keyword.arg == "sharding_strategy" and last(walker, keyword.value) not in (
            "FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2",
        ):  # fmt: skip
            return True
        if keyword.arg is None:
            return True
    return False


def method_clip(walker: Walker, call: Call) -> None:
    """model.clip_grad_norm_ of FSDP1 communicates."""
    if kind_of(call.owner, "fsdp1", walker) == "yes":
        walker.event("FSD208", "clip_grad_norm_ of FSDP1", call.node)


def scaled(walker: Walker, call: Call) -> None:
    """scaler.step(optimizer) with an optimizer of an FSDP1 model."""
    if kind_of(call.owner, "scaler", walker) != "yes" or not call.args:
        return
    for optimizer in call.args[0]:
        if optimizer.kind == "optimizer" and kind_of(models(optimizer.of), "fsdp1", walker) == "yes":
            walker.report("FSD306", call.node, _enabled(call.owner), how="ShardedGradScaler")
            return


def _enabled(things: Things) -> bool:
    nodes = [thing.node for thing in things if isinstance(thing.node, ast.Call)]
    return bool(nodes) and not any(keyword.arg == "enabled" for node in nodes for keyword in node.keywords)


def compiled(walker: Walker, call: Call) -> None:
    """torch.compile of an FSDP1 model wants the original parameters."""
    for thing in call.args[0] if call.args else ():
        node = thing.node
        if thing.kind == "fsdp1" and isinstance(node, ast.Call) and kind_of(call.args[0], "fsdp1", walker) == "yes":
            given = [keyword for keyword in node.keywords if keyword.arg in ("use_orig_params", None)]
            if not given or is_false(given[0].value):
                made = Call(node, "FSDP1", "", (), "", (), {})
                walker.report(
                    "FSD307", call.node, False, *(add_argument(made, "use_orig_params=True") if not given else ())
                )


def read_shape(walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
    """The number of dimensions of an FSDP1 parameter says nothing of the parameter before it was sharded."""
    asked = node.attr in ("ndim", "dim") or (node.attr == "shape" and _measured(walker, node))
    if asked and owner.kind == "param" and kind_of(owner.of, "fsdp1", walker) == "yes":
        walker.report("FSD308", node, True)


def _measured(walker: Walker, node: ast.Attribute) -> bool:
    """Whether this is ``len(p.shape)``."""
    return bool(walker.frame.file.lines[node.lineno - 1][: node.value.col_offset].rstrip().endswith(b"len("))


def dimensions(walker: Walker, call: Call) -> None:
    """p.dim()."""
    for owner in call.owner:
        if isinstance(call.node.func, ast.Attribute):
            read_shape(walker, owner, call.node.func, ())


def copied(walker: Walker, call: Call) -> None:
    """copy.deepcopy of a sharded model."""
    things = call.args[0] if call.args else ()
    if kind_of(things, "fsdp2", walker) == "yes":
        walker.report("FSD410", call.node, True)


def forward(walker: Walker, call: Call) -> None:
    """Unsharded parameters outside of forward."""
    if kind_of(call.owner, "fsdp1", walker) == "yes":
        walker.report("FSD309", call.node, True)


def static(walker: Walker, call: Call) -> None:
    """FSDP's static methods that gather."""
    walker.event("FSD701", f"FSDP.{call.name.partition('.')[2]}", call.node)


CALLS = {
    "FSDP1": [wrapped],
    "clip_grad_norm_": [clipped],
    "deepcopy": [copied],
    "torch.compile": [compiled],
    "FSDP1.optim_state_dict": [static],
    "FSDP1.full_optim_state_dict": [static],
    "FSDP1.scatter_full_optim_state_dict": [static],
    "FSDP1.summon_full_params": [static],
}
METHODS = {
    "dim": [dimensions],
    "clip_grad_norm_": [method_clip],
    "step": [scaled],
    "set_requires_gradient_sync": [forward],
}
ATTRIBUTES = [read_shape]
