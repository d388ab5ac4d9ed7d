"""What PyTorch's functions and classes give: models, optimizers, samplers, meshes, work under way; and ranks from the environment."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .records import Call, Thing, Things
from .torch_names import COLLECTIVES, short

if TYPE_CHECKING:
    from .walk import Walker

_RANK_KEYS = {"RANK": "rank", "SLURM_PROCID": "rank", "LOCAL_RANK": "local_rank", "SLURM_LOCALID": "local_rank"}


def environment(key: ast.expr, node: ast.AST) -> Things:
    """What an environment variable stands for."""
    if isinstance(key, ast.Constant) and key.value in _RANK_KEYS:
        return (Thing(_RANK_KEYS[key.value], str(key.value), node),)
    return ()


def torch_value(walker: Walker, call: Call) -> Things:
    """What PyTorch's functions and classes give."""
    name, node = call.name, call.node
    if name == "wrap":
        return _wrap(walker, call)
    if name == "fully_shard":
        things = call.things("module", 0)
        walker.mark(things, "fully_shard", node)
        return things
    if name == "get_rank":
        return (Thing("rank", "get_rank()", node),) if not node.args and not node.keywords else ()
    if name == "get_node_local_rank":
        return (Thing("local_rank", name, node),)
    if name in COLLECTIVES or name in ("isend", "irecv", "batch_isend_irecv"):
        return (Thing("work", name, node),)
    kind = _KINDS.get(name)
    if kind is None and name in ("convert_sync_batchnorm", "torch.compile", "get_peft_model"):
        return call.args[0] if call.args else ()
    if kind is None:
        return ()
    made = Thing(kind, call.full, node)
    made.file = walker.frame.file
    if kind in ("fsdp1", "ddp"):
        made.of = call.things("module", 0)
    elif kind == "optimizer":
        made.of = (*call.things("params", 0), *call.things("optimizer", 1))
    elif kind == "loader":
        made.of = call.things("sampler", 3)
        made.attrs["dataset"] = call.things("dataset", 0)
    if walker.inside("meta") and kind in ("module", "modulelist"):
        walker.mark((made,), "meta", node)
    walker.mark((made,), "made", node)
    walker.made.append(made)
    return (made,)


def _wrap(walker: Walker, call: Call) -> Things:
    """wrap(module) inside enable_wrap(wrapper_cls=FSDP, …), whose arguments hold for it."""
    for name, node, _ in reversed(walker.contexts):
        if name == "enable_wrap" and isinstance(node, ast.Call):
            given = next((keyword.value for keyword in node.keywords if keyword.arg == "wrapper_cls"), None)
            if given is not None and short(walker.full(given)) == "FSDP1":
                made = Thing("fsdp1", call.full, node)
                made.file, made.of = walker.frame.file, call.things("module", 0)
                walker.mark(made.of, "wrapped", call.node)
                return (made,)
    return call.args[0] if call.args else ()


_KINDS = {
    "Accelerator": "unknown",
    "FSDP1": "fsdp1",
    "DDP": "ddp",
    "optimizer": "optimizer",
    "ZeroRedundancyOptimizer": "optimizer",
    "DistributedSampler": "sampler",
    "DataLoader": "loader",
    "GradScaler": "scaler",
    "ShardedGradScaler": "sharded_scaler",
    "init_device_mesh": "mesh",
    "DeviceMesh": "mesh",
    "new_group": "group",
    "nn": "module",
    "ModuleList": "modulelist",
    "ModuleDict": "modulelist",
    "Join": "join",
    "CPUOffloadPolicy": "offload",
    "ThreadPool": "executor",
}
