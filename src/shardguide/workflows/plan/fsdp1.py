"""The decisions in FSDP1's terms, for releases that have no fully_shard (2.0 to 2.2)."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout
from ..situation import Situation
from .precision import Policy

STRATEGY = {"full": "FULL_SHARD", "grad_op": "SHARD_GRAD_OP", "hybrid": "HYBRID_SHARD", "none": "NO_SHARD"}


def mesh(s: Situation, layout: Layout) -> Decision:
    """Groups of ranks: FSDP1 makes them by itself, or takes a mesh from 2.2 on."""
    if layout.replicate == 1:
        reasons = ("FullyShardedDataParallel shards over the default process group, which is all ranks.",)
        other = Alternative("groups of a node", "That is HYBRID_SHARD; see the decision on sharding.")
        return Decision(
            "mesh", f"the default process group ({layout.shard} ranks)", reasons, (other,), ("fsdp1.full_shard",)
        )
    other = Alternative("the default process group", "That is FULL_SHARD over all ranks; see the decision on sharding.")
    reasons = (
        "HYBRID_SHARD without a group or mesh makes the groups within a node and across nodes by itself; a group of another size "
        "than a node needs a pair of process groups"
        + (", or a 2-D device_mesh." if s.at_least(2, 2) else " (device_mesh came with 2.2)."),
    )
    node = layout.shard == s.dp_per_node
    choice = "node groups, made by HYBRID_SHARD" if node else f"groups of {layout.shard} ranks, given as process_group"
    return Decision("mesh", choice, reasons, (other,), ("fsdp1.hybrid_shard", "fsdp1.hybrid.groups"))


def reshard(layout: Layout) -> Decision:
    """What the strategy does after forward."""
    kept = layout.strategy == "grad_op"
    reasons = (
        "The sharding strategy decides it: FULL_SHARD and HYBRID_SHARD free the parameters after forward, SHARD_GRAD_OP keeps them.",
    )
    other = Alternative("SHARD_GRAD_OP" if not kept else "FULL_SHARD", "See the decision on sharding.")
    choice = "no: SHARD_GRAD_OP" if kept else f"yes: {STRATEGY[layout.strategy]}"
    return Decision("reshard_after_forward", choice, reasons, (other,), ("fsdp1.full_shard", "fsdp1.shard_grad_op"))


def wrapping(s: Situation) -> Decision:
    """auto_wrap_policy with the block classes; the root flattens the rest."""
    blocks = [unit for unit in s.model.units if unit.role == "block"]
    names = (
        ", ".join(sorted({unit.module_class for unit in blocks if unit.module_class})) or "your repeated layer class"
    )
    reasons = (
        "Each wrapped module becomes one flat parameter that is gathered and reduced as a whole; whatever is left goes to the root.",
        "The embedding and the head stay with the root, where tied weights share one flat parameter.",
    )
    return Decision(
        "wrapping",
        f"auto_wrap_policy=transformer_auto_wrap_policy for {names}: {len(blocks) or 'its'} units and the root",
        reasons,
        (Alternative("no auto_wrap_policy", "One flat parameter for everything: the whole model unsharded at once."),),
        ("fsdp1.auto_wrap", "fsdp1.size_wrap_policy", "fsdp1.shared_params"),
        open=not blocks,
    )


def precision(s: Situation, policy: Policy, decision: Decision) -> Decision:
    """The policy's fields as FSDP1 names them; the reasons are those of ``decision``."""
    scaler = "; with ShardedGradScaler" if policy.grad_scaler else ""
    choice = f"MixedPrecision(param_dtype={policy.param}, reduce_dtype={policy.reduce}, buffer_dtype=None){scaler}"
    sources = ["fsdp1.mp.param_dtype", "fsdp1.mp.reduce_dtype", "fsdp1.mp.buffer_dtype", *decision.sources]
    return decision._replace(choice=choice, sources=tuple(dict.fromkeys(sources)))
