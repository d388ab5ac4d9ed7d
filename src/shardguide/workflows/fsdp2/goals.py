"""One decision for each goal: what FSDP2 does for it in this release, and how."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Decision, Release
from shardguide.knowledge import api, claims_store
from shardguide.knowledge.fsdp2_mapping import Feature

from ..sources import about
from .adopt import Case
from .tables import first


class Goal(NamedTuple):
    """What there is to say about a goal, for releases that have FSDP2."""

    choice: str
    because: tuple[str, ...]
    claims: tuple[str, ...]
    features: tuple[str, ...]  # of the comparison
    patterns: tuple[str, ...]  # the code that is shown; a pattern that the release cannot run is left out
    told: tuple[str, ...] = ()  # claims that are said in their own words, in the releases that they speak of
    instead_of: tuple[Alternative, ...] = ()


GOALS = {
    "sharding": Goal(
        "each parameter is a DTensor, cut on dim 0",
        (
            "Parameters are cut like torch.chunk; ranks that get less, or nothing, store as much as rank 0 does, in padding.",
            "Call fully_shard on each layer, then on the root: each call is one group that is gathered and reduced together.",
        ),
        ("fsdp2.dtensor", "fsdp2.chunks", "fsdp2.padding", "fsdp2.grouping", "fsdp2.bottom_up"),
        ("representation", "shard_dimension"),
        ("fsdp2-shard", "fsdp2-wrap-transformer"),
        (),
        (Alternative("fully_shard on the root alone", "One group: everything is gathered at once and nothing overlaps."),),
    ),
    "memory": Goal(
        "a group for each layer, resharded after forward; offload if that is not enough",
        (
            "Only the groups in use are gathered: their size, not the model's, decides what is unsharded at a time.",
            "reshard_after_forward=True frees a layer's parameters between forward and backward, for one all-gather more.",
            "FSDP2 needs no rate limiter; prefetching several groups by hand takes memory for overlap.",
            "CPUOffloadPolicy moves parameters, gradients and optimizer states to the host, for transfers in every step.",
            "What it saves in your case is for exact arithmetic (shardguide plan) and your own measurement to say.",
        ),
        ("fsdp2.layers_overlap", "fsdp2.reshard.true", "practice.no_rate_limiter", "practice.prefetch_memory", "offload2.what",
         "offload2.transfers"),
        ("memory", "offload", "reshard_setter", "partial_reshard"),
        ("fsdp2-reshard", "fsdp2-cpu-offload"),
    ),
    "hybrid": Goal(
        "a 2-D mesh, the replicate dimension first",
        (
            'init_device_mesh(device_type, (nodes, gpus_per_node), mesh_dim_names=("replicate", "shard")) shards within a node.',
            "In accumulation set_requires_all_reduce(False) keeps the slow link out of all micro-batches but the last.",
        ),
        ("fsdp2.mesh.hsdp_order", "fsdp2.mesh.names", "fsdp2.accumulation.all_reduce", "mesh.two_d_groups"),
        ("hybrid",),
        ("fsdp2-hybrid-mesh", "fsdp2-accumulate-hybrid"),
        ("fsdp2.mesh.hsdp_doc_wrong",),
    ),
    "compile": Goal(
        "torch.compile each block, then fully_shard it",
        ("The order is tensor parallelism, activation checkpointing, compile, fully_shard.",),
        ("practice.order_ac_compile_fsdp",),
        ("compile",),
        ("fsdp2-compile",),
        (
            "compile.fsdp2.hooks",
            "compile.fsdp2.skip_hooks",
            "compile.fsdp2.skip_hooks_2_4",
            "compile.fsdp2.compiled_autograd",
            "compile.in_place",
        ),
    ),
    "checkpoint": Goal(
        "sharded state dicts with torch.distributed.checkpoint; get_model_state_dict for one whole file",
        (
            "model.state_dict() holds the shards as DTensors and communicates nothing; every rank writes its own.",
            "They can be loaded with another number of ranks, since a DTensor says which part of which tensor it is.",
            "StateDictOptions(full_state_dict=True, cpu_offload=True) gathers all on rank 0; broadcast_from_rank0=True loads from there.",
            "A full state dict of FSDP1 has the model's own names and can be loaded; flat (local) ones cannot.",
        ),
        ("fsdp2.dtensor", "dcp.get_state_dict", "dcp.save", "dcp.load", "dcp.full_state_dict", "dcp.cpu_offload", "dcp.broadcast"),
        ("state_dict",),
        ("dcp-save-load", "full-state-dict-save", "full-checkpoint-load"),
        ("fsdp2.two_d_state_dict_2_4",),
    ),
    "tensor-parallel": Goal(
        "parallelize_module on one mesh dimension, then fully_shard on another",
        (
            "Both make DTensors. Take both meshes as dimensions of one parent mesh.",
            "parallelize_module comes first: fully_shard takes the DTensors that it makes.",
        ),
        ("tp.before_fsdp", "tp.one_d", "tp.plan"),
        ("tensor_parallel", "spmd_mesh"),
        ("tp-fsdp",),
        (
            "tp.fsdp.dims",
            "tp.fsdp.dims_before_2_9",
            "tp.fsdp.hybrid_before_2_5",
            "tp.fsdp.uneven_before_2_8",
            "fsdp2.two_d_state_dict_2_4",
            "tp.reshard_int",
        ),
    ),
    "pipeline": Goal(
        "fully_shard on each stage; torch.distributed.pipelining sets the flags for micro-batches",
        (
            "In a schedule of your own, set_is_last_backward says which backward is the last one.",
            "torchtitan keeps parameters unsharded after forward there, so that no micro-batch gathers anew.",
        ),
        ("fsdp2.last_backward", "practice.pp_no_reshard", "fsdp2.share_comm_ctx"),
        ("microbatches", "pipeline_streams"),
        (),
        ("pp.last_backward", "pp.actions"),
    ),
    "low-precision": Goal(
        "parameters of a tensor subclass that says what is gathered",
        ("Without such a class the all-gather is in param_dtype of the MixedPrecisionPolicy: bfloat16 halves float32's bytes.",),
        ("mp2.param_dtype",),
        ("low_precision",),
        ("fsdp2-mixed-precision",),
        ("lowp.what", "lowp.signature", "lowp.signature_before_2_9", "lowp.uneven", "lowp.uneven_before_2_6"),
    ),
    "frozen": Goal(
        "freeze before fully_shard; frozen and trainable parameters share a group",
        ("Nothing like use_orig_params is needed, and frozen parameters get no gradient memory.",),
        ("practice.frozen_fsdp2",),
        ("frozen",),
        ("fsdp2-frozen-lora",),
        ("fsdp2.uniform_dtype", "fsdp2.uniform_dtype_before_2_8"),
    ),
    "meta-init": Goal(
        "build on the meta device, fully_shard, to_empty, then initialise or load",
        (
            "Only shards are ever allocated.",
            "to_empty leaves arbitrary values: every module must set its parameters and buffers, or a checkpoint must.",
        ),
        ("practice.meta_after_sharding", "meta.to_empty", "meta.reset", "fsdp2.meta.error"),
        ("meta_init",),
        ("fsdp2-meta-init",),
        ("dsd.meta",),
    ),
    "migrate": Goal(
        "argument by argument, by the mapping below",
        (
            "fully_shard takes fewer arguments: what FSDP1 had as flags is either always so, or done outside.",
            "Save a full checkpoint with FSDP1 first: it has the model's own names and loads into both; a flat (local) one does not.",
        ),
        (),
        ("application", "state_dict"),
        ("fsdp2-shard", "fsdp2-accumulate", "full-state-dict-save"),
    ),
}  # fmt: skip
# In place of "migrate" where DistributedDataParallel is what trains now.
FROM_DDP = Goal(
    "each of DDP's arguments and habits, below",
    (
        "DDP(model) becomes fully_shard on each layer, then on the root. The model itself is changed: there is no model.module, and its "
        "state dict's keys have no module. prefix, which DDP's have.",
        "Make the optimizer after fully_shard. ZeroRedundancyOptimizer goes: the optimizer's states are sharded anyway.",
        "DDP sends rank 0's weights and buffers at construction and its buffers before forward; fully_shard sends nothing. Start every "
        "rank from the same weights, and keep buffers such as BatchNorm's statistics equal yourself.",
        "Old checkpoints load: torch.load on rank 0, strip module. from the keys, then set_model_state_dict with "
        "StateDictOptions(full_state_dict=True, broadcast_from_rank0=True).",
        "device_ids and output_device go: call torch.cuda.set_device(LOCAL_RANK) before fully_shard. process_group becomes mesh.",
        "with model.no_sync(): becomes set_requires_gradient_sync(False), and True again for the last micro-batch; meanwhile every rank "
        "holds the whole model's gradients.",
        "bucket_cap_mb, gradient_as_bucket_view and static_graph have no counterpart: the groups that you shard take the place of buckets.",
        "Gradients are averaged over the ranks as before; torch.nn.utils.clip_grad_norm_ stays, and returns a DTensor.",
        "Autocast can stay as it is; MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) halves the bytes of "
        "the all-gathers besides.",
        "Join has no counterpart: a model under fully_shard is not a Joinable.",
    ),
    (
        "fsdp2.bottom_up", "fsdp2.in_place", "ddp.prefix", "practice.optimizer_after", "fsdp2.what", "ddp.zero", "review.no_broadcast",
        "ddp.starts_alike", "ddp.buffers", "dcp.broadcast", "ddp.device_from_launcher", "fsdp2.mesh.device", "ddp.no_sync",
        "fsdp2.accumulation.sync", "fsdp2.accumulation.unsharded", "fsdp2.grouping", "ddp.average", "mp2.divide", "practice.clip",
        "mp2.module_level", "mp2.param_dtype", "join.who.fsdp2",
    ),
    ("application", "state_dict"),
    ("fsdp2-shard", "fsdp2-accumulate", "full-checkpoint-load"),
    ("fsdp2.unused_params",),
    (Alternative("staying with DDP", "Where the model fits one GPU: FSDP adds all-gathers to every forward and backward."),),
)  # fmt: skip


def _plan(goal: str, case: Case) -> Goal:
    return FROM_DDP if goal == "migrate" and case.using == "ddp" else GOALS[goal]


def decide(goal: str, case: Case, features: list[Feature], mapped: tuple[str, ...], release: Release) -> Decision:
    """The decision for one goal; ``mapped`` are the claims of the mapping, which ``migrate`` cites."""
    plan = _plan(goal, case)
    mine = [one for one in features if one.id in plan.features]
    name = goal.replace("-", "_")
    if not case.has:
        return _with_fsdp1(name, case, mine)
    told = [claim for claim in plan.told if about(claim, release)]
    reasons = [*plan.because, *(claims_store.get(claim).text for claim in told)]
    for one in mine:
        if not api.holds(case.release, one.releases2):
            reasons.append(f"Not in PyTorch {case.release} yet: {one.title}; it came with {first(one.releases2)}.")
    return Decision(
        name,
        plan.choice,
        tuple(reasons),
        plan.instead_of,
        (*plan.claims, *told, *(mapped if goal == "migrate" else ())),
    )


def _with_fsdp1(name: str, case: Case, mine: list[Feature]) -> Decision:
    """What a release without FSDP2 offers instead."""
    there = [one for one in mine if one.fsdp1 and api.holds(case.release, one.releases1)]
    reasons = [f"{one.title} in FSDP1: {one.fsdp1}" for one in there]
    reasons += [
        f"FSDP1's way is not in this release either; it came with {first(one.releases1)}: {one.fsdp1}"
        for one in mine
        if one.fsdp1 and one not in there
    ]
    if not reasons:
        reasons.append(
            "There is nothing to migrate to in this release." if name == "migrate" else "FSDP1 has nothing for it."
        )
    cited = tuple(
        claim
        for one in there
        for claim in one.claims
        if claim.startswith(("fsdp1.", "offload1.", "fp16.fsdp1", "tp.", "dcp."))
    )
    return Decision(name, f"not with FSDP2 in PyTorch {case.release}", tuple(reasons), (), cited)


# What a release without FSDP2 is shown.
_FSDP1_PATTERNS = {
    "memory": "fsdp1-cpu-offload",
    "hybrid": "fsdp1-hybrid",
    "compile": "fsdp1-compile",
    "checkpoint": "fsdp1-state-dict",
    "meta-init": "fsdp1-meta-init",
}


def patterns(case: Case) -> list[str]:
    """The ids of the patterns that go with the answer."""
    if not case.has:
        return list(dict.fromkeys(["fsdp1-shard", *(_FSDP1_PATTERNS.get(goal, "fsdp1-shard") for goal in case.goals)]))
    return list(dict.fromkeys(one for goal in case.goals for one in _plan(goal, case).patterns))
