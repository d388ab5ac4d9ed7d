"""Checkpoints (FSD7xx)."""

from __future__ import annotations

import ast

from ..records import Call, Things
from ..torch_names import CHECKPOINT
from ..walk import Walker
from .common import add_argument, is_false, is_true, kind_of, models, of_rank, one_rank
from .parts import in_tests

_FOR_OPTIMIZER = (
    "FullyShardedDataParallel.optim_state_dict_to_load",
    "FullyShardedDataParallel.scatter_full_optim_state_dict",
    "FullyShardedDataParallel.shard_full_optim_state_dict",
)


def state_dict(walker: Walker, call: Call) -> None:
    """model.state_dict(): FSDP1's gathers, FSDP2's holds this rank's shards."""
    if kind_of(call.owner, "fsdp1", walker) == "yes":
        walker.event("FSD701", "state_dict() of an FSDP1 model", call.node)
    elif kind_of(call.owner, "fsdp2", walker) == "yes" and one_rank(walker):
        sure = all(condition.sure for condition in walker.path if condition.kind == "rank")
        walker.report("FSD703", call.node, sure)


def distributed(walker: Walker, call: Call) -> None:
    """Functions of torch.distributed.checkpoint: every rank calls them."""
    if not is_true(call.argument("no_dist")):
        walker.event("FSD702", f"{call.name.partition('.')[2]} of torch.distributed.checkpoint", call.node)


def loaded(walker: Walker, call: Call) -> None:
    """dcp.load works in place: it loads what the dictionary has."""
    given = call.argument("state_dict", 0)
    if isinstance(given, ast.Name):
        given = walker.written(given)
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id == "dict" and not given.args:
        values = [keyword.value for keyword in given.keywords if keyword.arg]
        given = ast.Dict([None] * len(values), values) if len(values) == len(given.keywords) else given
    if isinstance(given, ast.Dict):
        # One empty part is enough: {"model": {}, "step": 0} loads the step alone.
        empty = not given.keys or any(isinstance(value, ast.Dict) and not value.keys for value in given.values)
        filled = any(thing.attrs or thing.marks for thing in call.things("state_dict", 0))
        planned = call.argument("planner") is not None  # one of its own may fill what is empty
        if empty and not filled and not planned and not call.spread():
            # An empty part beside others that are filled may be meant so.
            sure = all(isinstance(value, (ast.Dict, ast.Constant)) for value in given.values)
            walker.report("FSD706", call.node, sure)


def plain_load(walker: Walker, call: Call) -> None:
    """torch.load on every rank."""
    if call.spread() or in_tests(walker.frame.file):
        return
    source = call.argument("f", 0)
    held = source is not None and _in_memory(walker, source)
    if is_false(call.argument("weights_only")) and not held:
        walker.report("FSD704", call.node, False)
    if held or (source is not None and of_rank(walker, source) is not None):
        return  # bytes at hand, or a file of each rank's own
    if call.argument("map_location", 1) is None:
        walker.fact("load without map", call.node)
    else:
        walker.fact("load with map", call.node)


def _in_memory(walker: Walker, source: ast.expr) -> bool:
    """Whether bytes are loaded that the program has in hand, no file."""
    made = walker.written(source) if isinstance(source, ast.Name) else source
    if isinstance(made, ast.Call):
        return walker.full(made.func).rpartition(".")[2] in ("BytesIO", "SpooledTemporaryFile")
    if isinstance(source, ast.Name) and source.id in ("stream", "buffer", "buf"):
        return True
    return f"{walker.source(source)}.seek(" in walker.frame.file.text  # only what is open already is wound back


def options(walker: Walker, call: Call) -> None:
    """StateDictOptions(broadcast_from_rank0=True) needs a full state dict."""
    if is_true(call.argument("broadcast_from_rank0")) and not call.spread():
        given = call.argument("full_state_dict")
        if given is None or is_false(given):
            walker.report(
                "FSD707", call.node, True, *(add_argument(call, "full_state_dict=True") if given is None else ())
            )


def unused(walker: Walker, node: ast.Call, things: Things) -> None:
    """A state dict for the optimizer that is made and thrown away."""
    full = walker.full(node.func)
    if full.endswith(_FOR_OPTIMIZER):
        walker.report("FSD709", node, True)


def kept(walker: Walker, node: ast.Assign) -> None:
    """The same, with a name that nothing reads."""
    if not isinstance(node.value, ast.Call) or not isinstance(node.targets[0], ast.Name) or not walker.stack:
        return
    full, name = walker.full(node.value.func), node.targets[0].id
    if full.endswith(_FOR_OPTIMIZER):
        around = walker.stack[-1]
        if not any(
            isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Load)
            for inner in ast.walk(around)
        ):
            walker.report("FSD709", node, True)


def optimizer_state(walker: Walker, call: Call) -> None:
    """optimizer.state_dict() of a sharded model on one rank."""
    if not one_rank(walker):
        return
    for owner in call.owner:
        if owner.kind == "unknown" and "optim" in owner.name.lower() and _wraps(walker):
            walker.report("FSD710", call.node, False)
        if owner.kind == "optimizer":
            held = models(owner.of)
            if kind_of(held, "fsdp2", walker) == "yes" or kind_of(held, "fsdp1", walker) == "yes":
                sure = all(one.sure for one in walker.path if one.kind == "rank")
                walker.report("FSD710", call.node, sure)


def _wraps(walker: Walker) -> bool:
    """Whether a file that leaves the wrapping to Accelerate reckons with FSDP."""
    names = walker.frame.file.imports.values()
    return "torch.distributed.fsdp.FullyShardedDataParallel" in names and any("accelerate" in name for name in names)


def consolidated(walker: Walker, call: Call) -> None:
    """ZeroRedundancyOptimizer.consolidate_state_dict gathers."""
    if any(owner.kind == "optimizer" for owner in call.owner):
        walker.event("FSD711", "consolidate_state_dict", call.node)


def project(walker: Walker) -> None:
    """torch.load without map_location where several processes run."""
    facts = walker.facts
    if facts.get("nccl"):
        careful = {id(file) for file, _ in facts.get("load with map", ())}
        for file, node in facts.get("load without map", ()):
            if id(file) in careful or not any(full.startswith("torch.distributed") for full in file.imports.values()):
                continue
            made = Call(node, "torch.load", "", (), "", (), {}) if isinstance(node, ast.Call) else None
            edits = add_argument(made, 'map_location="cpu"') if made is not None else ()
            walker.report_at("FSD705", file, node, False, *edits)


CALLS = {
    **{f"dcp.{name}": [distributed] for name in sorted(CHECKPOINT)},
    "dcp.load": [distributed, loaded],
    "torch.load": [plain_load],
    "StateDictOptions": [options],
}
METHODS = {"state_dict": [state_dict, optimizer_state], "consolidate_state_dict": [consolidated]}
DROPPED = [unused]
ASSIGNED = [kept]
PROJECT = [project]
