"""What a person must decide, by code: what it is, why, and the claims that it rests on."""

from __future__ import annotations

# code -> (what, why, claims)
TODOS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "no-shard": (
        "Take torch.nn.parallel.DistributedDataParallel for this model, or shard it.",
        "NO_SHARD replicates the parameters; fully_shard always shards, so the call and all that uses its model stay as they are.",
        ("fsdp1.no_shard", "fsdp1.no_shard.deprecated"),
    ),
    "no-shard-possible": (
        "Decide what NO_SHARD is to become; if it is never chosen here, nothing is to be done.",
        "The strategy is known only when the program runs. For NO_SHARD the new code raises an error: fully_shard always shards.",
        ("fsdp1.no_shard",),
    ),
    "hybrid-nodes": (
        "Check the sizes of the mesh: nodes and GPUs of a node.",
        "FSDP1 shards within a node of torch.cuda.device_count() GPUs by itself; fully_shard takes the sizes from the mesh.",
        ("fsdp1.hybrid.groups", "fsdp2.mesh.hsdp_order"),
    ),
    "mesh-names": (
        "Give the 2-D mesh mesh_dim_names, the replicate dimension first.",
        "fully_shard takes a 2-D mesh only with names.",
        ("fsdp2.mesh.names", "fsdp2.mesh.hsdp_order"),
    ),
    "process-group-pair": (
        'If the sizes are known, write init_device_mesh(device_type, (replicas, shards), mesh_dim_names=("replicate", "shard")).',
        "A pair of groups says which ranks shard and which replicate; a mesh holds the ranks of all, so the new code asks every rank "
        "for its group once. The groups must form a grid.",
        ("fsdp1.hybrid.groups", "fsdp2.mesh.hsdp_order"),
    ),
    "arguments": (
        "Write the arguments of this call out, then migrate again.",
        "Some of them come from * or **, and what they hold cannot be read.",
        (),
    ),
    "arguments-at-run-time": (
        "Write the arguments out and migrate again, for code without the function shard_model; check that NO_SHARD is not among them.",
        "They come from ** and are known only when the program runs, so a function translates them then.",
        ("fsdp1.auto_wrap", "fsdp2.bottom_up"),
    ),
    "argument-unknown": (
        "Migrate this call by hand.",
        "It has an argument that FSDP1 does not have in any release.",
        (),
    ),
    "expression": (
        "Move this call to a statement of its own, then migrate again.",
        "What belongs before or after it cannot be put inside an expression.",
        (),
    ),
    "own-options": (
        "Check what the policy gives for single modules: strategy, precision, offloading and mesh are translated, prefetching is left to "
        "FSDP2, anything else raises an error.",
        "A CustomPolicy may give arguments that differ by module, and they are known only when the program runs.",
        ("fsdp2.bottom_up",),
    ),
    "custom-policy": (
        "Write the loop over the modules by hand, with the arguments of fully_shard for each.",
        "A CustomPolicy may give arguments that differ by module; what it is made of could not be read here.",
        ("fsdp2.bottom_up",),
    ),
    "custom-policy-possible": (
        "If the policy is a CustomPolicy, write the loop over the modules by hand.",
        "The policy is known only when the program runs. The new code calls it, and a CustomPolicy cannot be called: it raises an error.",
        ("fsdp2.bottom_up",),
    ),
    "buffer-dtype": (
        "Check the precision of the buffers.",
        "fully_shard leaves buffers alone, so the code casts them once, as FSDP1 did before the first forward.",
        ("fsdp1.mp.buffer_dtype",),
    ),
    "keep-low-precision-grads": (
        "Check the memory of the gradients.",
        "keep_low_precision_grads has no counterpart: the optimizer gets gradients in the parameters' own dtype.",
        ("fsdp1.mp.keep_low_precision_grads",),
    ),
    "batch-norm": (
        "Check that batch norms are to stay in full precision.",
        "FSDP1 kept them out of mixed precision unasked; the loop does so in plain words.",
        ("fsdp1.mp.batch_norm",),
    ),
    "initialisation": (
        "Check who gives the parameters and buffers their values after the meta device.",
        "The function that initialises a module now runs after sharding and sees DTensors; random values differ from those of FSDP1, "
        "and a buffer that it does not fill stays undefined.",
        ("fsdp1.param_init_fn", "practice.meta_after_sharding", "meta.to_empty", "meta.reset"),
    ),
    "sync-module-states": (
        "Check the memory at start-up: each rank keeps its whole state dict until rank 0's values are sent.",
        "FSDP1 sent them unit by unit; the state dict helpers send them tensor by tensor, after sharding.",
        ("fsdp1.sync_module_states", "dcp.broadcast", "dsd.set_full"),
    ),
    "prefetch": (
        "Measure; if communication is exposed, see set_modules_to_forward_prefetch and set_modules_to_backward_prefetch.",
        "FSDP2 always prefetches as BACKWARD_PRE does; BACKWARD_POST, None and forward_prefetch have no switch.",
        ("practice.backward_prefetch", "fsdp2.prefetch.forward", "practice.implicit_prefetch"),
    ),
    "device": (
        "Set the device before fully_shard: torch.cuda.set_device(local_rank).",
        "device_id moved the model; fully_shard takes the current device, which nothing in these files sets.",
        ("fsdp1.device_id", "fsdp2.mesh.device"),
    ),
    "parameter-groups": (
        "Check which parameters get weight decay.",
        "FSDP1's parameters are 1-D pieces, so groups by the number of dimensions put all of them into one group; DTensors have their "
        "own shape, and the groups become what they say.",
        ("fsdp1.use_orig_params", "fsdp2.dtensor"),
    ),
    "ignored-release": (
        "Move to PyTorch 2.7 or later, or shard the other modules one by one.",
        "fully_shard of this release has no ignored_params.",
        ("fsdp2.ignored_params",),
    ),
    "release": (
        "Move to a later PyTorch, or write this by hand.",
        "The release that was asked for lacks something that the new code needs.",
        (),
    ),
    "backend": (
        'Give the process group a backend for the CPU: init_process_group("cpu:gloo,cuda:nccl").',
        "With CPUOffloadPolicy gradients are on the CPU, and clipping them is a collective there, which NCCL cannot do.",
        ("offload2.params_on_cpu",),
    ),
    "optimizer-first": (
        "Build the optimizer after fully_shard.",
        "fully_shard replaces the parameters: an optimizer from before it holds the old ones and changes nothing.",
        ("practice.optimizer_after",),
    ),
    "both": (
        "Decide whether FSDP1 is still to be offered; if not, take its branch out by hand.",
        "The project has FSDP1 and FSDP2 side by side, and a setting or a release decides here, not the model's type.",
        (),
    ),
    "twin": (
        "Keep one of the two branches: this one and its FSDP2 twin now do the same.",
        "The FSDP1 branch was converted in place; what asks for the type of its model now takes the way of FSDP2. Check settings "
        "and tests elsewhere that still tell the two apart by name.",
        (),
    ),
    "type-test": (
        "Decide whether an FSDP2 model (FSDPModule) is meant here as well.",
        "The test asks for FSDP1 alone, so the project's FSDP2 models, and those that were FSDP1 until now, are not taken for sharded.",
        (),
    ),
    "fsdp2-too": (
        "Check what an FSDP2 model needs here.",
        "FSDP2's models come here as well, and FSDP1's function does nothing to them; it was left so that nothing changes for them.",
        (),
    ),
    "left-constructor": (
        "Migrate the constructor first.",
        "The FSDP(...) call that this belongs to was left as it is, so this was, too.",
        (),
    ),
    "ddp-too": (
        "Write one line for each: for the model of fully_shard, and for DistributedDataParallel's.",
        "It is called on a model that may be either; the names in a state dict, and .module, are not the same for both.",
        ("fsdp2.in_place",),
    ),
    "unknown-model": (
        "Check what this is called on.",
        "It could not be seen that it is an FSDP1 model.",
        (),
    ),
    "summon-write": (
        "Write into the shards, or hand over distribute_tensor(full, mesh, placements).",
        "with_grads, and writing whole parameters back under mixed precision, have no counterpart.",
        ("fsdp2.unshard", "fsdp2.dtensor"),
    ),
    "summon": (
        "Check the body: it gets whole parameters on every rank, on the device, in param_dtype.",
        "unshard gathers as forward does; FSDP1 gathered in full precision, and with rank0_only on rank 0 alone.",
        ("fsdp2.unshard", "fsdp2.reshard_method"),
    ),
    "state-dict-type": (
        "Say which state dict is meant, with get_model_state_dict and StateDictOptions.",
        "The kind of the state dict was set elsewhere, or what the context is for could not be read.",
        ("fsdp1.state_dict_deprecated", "dcp.get_state_dict"),
    ),
    "local-state-dict": (
        "Convert old checkpoints with FSDP1 first, if they are still wanted.",
        "LOCAL_STATE_DICT holds pieces of flat parameters, which FSDP2 does not have; the code now writes and reads the sharded form.",
        ("fsdp2.dtensor", "dcp.get_state_dict"),
    ),
    "all-ranks-state-dict": (
        "Check the memory: every rank gets the whole state dict on its device.",
        "FSDP1 gave it to every rank (rank0_only=False); with cpu_offload the helpers would give it to rank 0 only.",
        ("dcp.full_state_dict", "dcp.cpu_offload"),
    ),
    "rank-of-group": (
        "Check which rank saves: only rank 0 of all gets the state dict now; leave cpu_offload out where another rank needs it.",
        "With rank0_only FSDP1 gave it to the first rank of the model's process group, of which there may be several; with cpu_offload "
        "the helpers give it to rank 0 of all ranks, and an empty one to the others.",
        ("dcp.full_state_dict", "dcp.cpu_offload"),
    ),
    "optimizer-state": (
        "Load it with set_optimizer_state_dict(model, optimizer, state_dict, options=...).",
        "What FSDP1's function gives is not loaded into an optimizer nearby, so the two could not be made one.",
        ("dcp.get_state_dict", "dcp.optimizer_when"),
    ),
    "never-loaded": (
        "Load it, if the optimizer is to go on from there: set_optimizer_state_dict(model, optimizer, state_dict, options=...).",
        "The optimizer's state was made ready, but no optimizer got it: training went on with an empty one, and still does. The call "
        "had no other effect, so it was taken out.",
        ("dcp.get_state_dict", "dcp.optimizer_when"),
    ),
    "checkpoints": (
        "Check that old checkpoints can be read.",
        "Full state dicts of FSDP1 have the model's own names and load; an optimizer's keys are parameter names now.",
        ("dsd.names", "dcp.get_state_dict"),
    ),
    "optimizer-files": (
        "Read optimizer files of before with FSDP1 once, and save them whole, if they are still wanted.",
        "The optimizer's own state dict now holds DTensors; FSDP1's holds pieces of flat parameters, which do not fit in their place.",
        ("fsdp2.dtensor", "dcp.get_state_dict"),
    ),
    "own-arithmetic": (
        "Check this arithmetic: a DTensor's norm or sum is that of the whole parameter, on every rank.",
        "Under FSDP1 each rank saw its own piece, and a collective made the whole of it; now the collective counts it once per rank, "
        "or is given a DTensor. Take p.to_local() for the piece, or leave the collective out.",
        ("fsdp2.dtensor",),
    ),
    "own-updates": (
        "Call model.reshard() before this, where a forward without backward may have run since the last backward.",
        "After such a forward (evaluation, an average of the weights) the outermost module of fully_shard keeps its parameters whole "
        "until the next backward: parameters() gives these, beside DTensors of the other modules, and what is written into them is lost.",
        ("fsdp2.reshard.default",),
    ),
    "sharded-tensor": (
        "Write to_local() for DTensors.",
        "Sharded state dicts of FSDP1 without a mesh hold ShardedTensors; those of FSDP2 hold DTensors.",
        ("fsdp2.dtensor",),
    ),
    "infinity-norm": (
        "Check that no rank has an empty shard of a parameter, or take the largest of the shards' own values.",
        "clip_grad_norm_ with the infinity norm raises an error on a rank whose shard is empty: fewer rows than ranks are enough.",
        (),
    ),
    "private": (
        "Write this anew for DTensors.",
        "It reaches into FSDP1's own parts (flat parameters, handles), which FSDP2 does not have.",
        ("fsdp2.dtensor",),
    ),
    "comm-hook": (
        "Write a ReduceScatter of your own, or use set_all_reduce_hook or set_gradient_divide_factor.",
        "FSDP1's communication hooks do not run under FSDP2.",
        ("fsdp1.comm_hook", "comm.custom"),
    ),
    "apply": (
        "Check that the function works on DTensors.",
        "FSDP1's apply gathered the parameters first; now the function sees the shards as DTensors.",
        ("fsdp2.dtensor",),
    ),
    "no-counterpart": (
        "Take this out, or write it anew.",
        "FSDP2 has no counterpart.",
        (),
    ),
    "activation-checkpointing": (
        "Apply activation checkpointing, then torch.compile of each block, before fully_shard.",
        "That is the order in which FSDP2 is used; here it comes after.",
        ("practice.order_ac_compile_fsdp",),
    ),
    "compile": (
        "Consider compiling each block before fully_shard.",
        "torch.compile of the whole sharded model works but breaks its graph at each fully_shard.",
        ("practice.order_ac_compile_fsdp",),
    ),
    "class": (
        "Write what is meant for FSDP2.",
        "FSDP1's class is used as a value; fully_shard is a function and has no wrapper class.",
        ("fsdp2.in_place",),
    ),
    "old-default": (
        "Nothing, if the outermost module may keep its parameters after forward.",
        "From 2.8 on reshard_after_forward is None by default: True for all but the root, as it was in effect.",
        ("fsdp2.reshard.default", "fsdp2.reshard.default_before_2_8"),
    ),
}  # fmt: skip


class Refusal(Exception):
    """A use that stays as it is; ``code`` says why."""

    def __init__(self, code: str, why: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.why = why
