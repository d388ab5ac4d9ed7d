"""What scripts/build_api.py covers: releases, modules, single names."""

from __future__ import annotations

# Every patch on the package index, read in November 2026.
PATCHES = {
    "2.0": ("2.0.0", "2.0.1"),
    "2.1": ("2.1.0", "2.1.1", "2.1.2"),
    "2.2": ("2.2.0", "2.2.1", "2.2.2"),
    "2.3": ("2.3.0", "2.3.1"),
    "2.4": ("2.4.0", "2.4.1"),
    "2.5": ("2.5.0", "2.5.1"),
    "2.6": ("2.6.0",),
    "2.7": ("2.7.0", "2.7.1"),
    "2.8": ("2.8.0",),
    "2.9": ("2.9.0", "2.9.1"),
    "2.10": ("2.10.0",),
    "2.11": ("2.11.0",),
    "2.12": ("2.12.0", "2.12.1"),
    "2.13": ("2.13.0",),
    "2.14": ("2.14.0", "2.14.1"),
    "2.15": ("2.15.0",),
}

# Modules whose public names are all taken, imported ones included; of torch.distributed every module without an underscore is.
MODULES = (
    "torch.distributed._composable",
    "torch.distributed._composable.fsdp",
    "torch.distributed._tensor",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.distributed.fsdp._fully_shard",
    "torch.nn.parallel",
    "torch.nn.utils",
    "torch.nn.utils.clip_grad",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.amp",
    "torch.cuda.amp",
    "torch.accelerator",
    "torch.cuda",
    "torch.cuda.memory",
    "torch.xpu",
    "torch.compiler",
    "torch.utils.checkpoint",
    "torch.utils.data.distributed",
)
# Modules that users import from all the same: what is defined in them.
INNER = (
    "torch.amp.grad_scaler",
    "torch.distributed._composable.contract",
    "torch.distributed._composable.replicate",
    "torch.distributed._composable.replicate_with_fsdp",
    "torch.distributed._functional_collectives",
    "torch.distributed._symmetric_memory",
    "torch.distributed._tensor.api",
    "torch.distributed._tensor.debug",
    "torch.distributed._tensor.device_mesh",
    "torch.distributed._tensor.experimental",
    "torch.distributed._tensor.placement_types",
    "torch.distributed._tools.fsdp2_mem_tracker",
    "torch.distributed._tools.mem_tracker",
    "torch.distributed._tools.memory_tracker",
    "torch.distributed._tools.mod_tracker",
    "torch.distributed._tools.runtime_estimator",
    "torch.distributed._tools.sac_estimator",
    "torch.distributed.algorithms._comm_hooks.default_hooks",
    "torch.distributed.tensor.experimental._attention",
    "torch.distributed.tensor.experimental._context_parallel",
    "torch.multiprocessing.spawn",
    "torch.nn.parallel.distributed",
    "torch.testing._internal.distributed.fake_pg",
)
# Single names of modules that are otherwise none of our business.
NAMES = (
    *("torch.compile", "torch.save", "torch.load", "torch.manual_seed", "torch.set_default_device", "torch.autocast"),
    *("torch.nn.Module", "torch.nn.Parameter", "torch.nn.SyncBatchNorm", "torch.nn.functional.cross_entropy"),
    *("torch.nn.Linear", "torch.nn.LayerNorm", "torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential"),
    *("torch.utils.data.DataLoader", "torch.utils.data.DistributedSampler"),
    *("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"),
    # private by name, and used: in PyTorch's tutorials and documentation, in torchtitan, in questions
    "torch._C._distributed_c10d.Backend",
    "torch.distributed._all_gather_base",
    "torch.distributed._local_tensor.LocalTensor",
    "torch.distributed._local_tensor.LocalTensorMode",
    "torch.distributed._make_nccl_premul_sum",
    "torch.distributed._reduce_scatter_base",
    "torch.distributed._shard.sharded_tensor.ShardedTensor",
    "torch.distributed._state_dict_utils._broadcast_state_dict",
    "torch.distributed._state_dict_utils._distribute_state_dict",
    "torch.distributed.checkpoint.default_planner._EmptyStateDictLoadPlanner",
    "torch.distributed.checkpoint.state_dict_loader._load_state_dict_from_keys",
    "torch.distributed.distributed_c10d._coalescing_manager",
    "torch.distributed.distributed_c10d._get_default_group",
    "torch.distributed.fsdp.FlatParameter",
    "torch.distributed.fsdp.wrap._Policy",
    "torch.distributed.fsdp.wrap._module_wrap_policy",
    "torch.distributed.fsdp.wrap._or_policy",
    "torch.distributed.optim._NamedOptimizer",
    "torch.distributed.optim._apply_optimizer_in_backward",
    "torch.distributed.optim._get_in_backward_optimizers",
    "torch.distributed.pipelining.schedules._PipelineScheduleRuntime",
    "torch.distributed.tensor._random.manual_seed",
    "torch.distributed.tensor.placement_types._StridedShard",
)
# Members of that sort.
PRIVATE_MEMBERS = {
    "torch.nn.parallel.DistributedDataParallel": (
        *("_get_ddp_logging_data", "_register_fused_optim", "_set_params_and_buffers_to_ignore_for_model"),
        "_set_static_graph",
    ),
    "torch.distributed.tensor.DTensor": ("_local_tensor", "_spec"),
    "torch.distributed._tensor.DTensor": ("_local_tensor", "_spec"),
    "torch.distributed.device_mesh.DeviceMesh": ("__getitem__", "_concatenate", "_flatten", "_unflatten"),
}
# Packages whose __all__ leaves out what their documentation tells to call.
IMPORTS_TOO = (
    *("torch.distributed._tensor", "torch.distributed.autograd", "torch.distributed.rpc", "torch.distributed.tensor"),
)
# What a stub forgot: include/torch/csrc/distributed/c10d/Types.hpp of 2.0.1 has it.
FORGOTTEN = {("2.0.1", "torch.distributed.ReduceOp"): ["AVG"]}
# Of several public names of one object these modules give the one that the documentation uses.
HOMES = ("torch.distributed.device_mesh", "torch.distributed.nn.functional", "torch.utils.data.distributed")
# Where environment variables are looked for.
READERS = ("torch/distributed/", "torch/nn/parallel/", "torch/utils/checkpoint.py")
RUN = "torch/distributed/run.py"
