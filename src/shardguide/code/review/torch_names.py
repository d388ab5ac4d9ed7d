"""Which of PyTorch's names the review knows, by the short name under which the checks ask for them."""

from __future__ import annotations

# Every rank of the group must call these, in the same order.
COLLECTIVES = frozenset(
    [
        "barrier",
        "monitored_barrier",
        "all_reduce",
        "all_reduce_coalesced",
        "reduce",
        "broadcast",
        "broadcast_object_list",
        "all_gather",
        "all_gather_object",
        "all_gather_into_tensor",
        "all_gather_single",
        "all_gather_coalesced",
        "gather",
        "gather_object",
        "scatter",
        "scatter_object_list",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "reduce_scatter_single",
        "all_to_all",
        "all_to_all_single",
    ]
)
# Of torch.distributed.checkpoint and its state_dict module.
CHECKPOINT = frozenset(
    [
        "save",
        "load",
        "async_save",
        "save_state_dict",
        "load_state_dict",
        "get_state_dict",
        "get_model_state_dict",
        "get_optimizer_state_dict",
        "set_state_dict",
        "set_model_state_dict",
        "set_optimizer_state_dict",
    ]
)
CALLED = frozenset(
    [
        "init_process_group",
        "new_group",
        "destroy_process_group",
        "get_rank",
        "get_node_local_rank",
        "get_world_size",
        "is_initialized",
        "isend",
        "irecv",
        "send",
        "recv",
        "batch_isend_irecv",
        "init_device_mesh",
        "fully_shard",
    ]
)
# Without the process group none of these works.
NEED_GROUP = COLLECTIVES | {"new_group", "get_rank", "get_world_size", "send", "recv", "isend", "irecv"}

FSDP1 = "FullyShardedDataParallel"
DDP = "DistributedDataParallel"
_OPTIMIZERS = ("torch.optim.", "torch.distributed.optim.", "bitsandbytes.optim.", "torchao.optim.", "apex.optimizers.")
_NO_OPTIMIZERS = ("lr_scheduler", "swa_utils")

# What makes a function worth following: calls of these names, wherever they come from.
INTERESTING = (
    COLLECTIVES
    | CHECKPOINT
    | CALLED
    | frozenset(
        [
            "FSDP",
            "FullyShardedDataParallel",
            "DDP",
            "DistributedDataParallel",
            "wrap",
            "DistributedSampler",
            "DataLoader",
            "GradScaler",
            "ShardedGradScaler",
            "set_device",
            "set_device_index",
            "no_sync",
            "clip_grad_norm_",
            "summon_full_params",
            "state_dict",
            "parameters",
            "set_epoch",
            "Join",
            "deepcopy",
            "to_empty",
            "wait",
            "consolidate_state_dict",
            "full_tensor",
            "optim_state_dict",
            "ZeroRedundancyOptimizer",
            "Adam",
            "AdamW",
            "SGD",
            "getenv",
            "environ",
            "DataParallel",
            "Thread",
            "unshard",
            "wait_for_everyone",
            "ThreadPoolExecutor",
            "spawn",
            "start_processes",
            "init_rpc",
            "random_split",
            "compile",
            "convert_sync_batchnorm",
            "full_optim_state_dict",
            "optim_state_dict_to_load",
            "backward",
            "unscale_",
            "named_parameters",
            "manual_seed",
            "makedirs",
            "mkdir",
            "save_state",
            "load_state",
        ]
    )
)


def short(full: str) -> str:
    """The name that checks use: "all_reduce", "dcp.save", "FSDP1", "DDP", "optimizer", …; "" for what they don't know."""
    if not full.startswith("torch."):
        return "optimizer" if is_optimizer(full) else _OTHERS.get(full, "")
    last = full[full.rfind(".") + 1 :]
    if full.startswith("torch.distributed."):
        if last == FSDP1 or full == "torch.distributed.fsdp.FSDP":
            return "FSDP1"
        if full.startswith("torch.distributed.fsdp.") and f".{FSDP1}." in full:
            return f"FSDP1.{last}"
        if full.startswith("torch.distributed.checkpoint.") and last in CHECKPOINT:
            return f"dcp.{last}"
        if is_optimizer(full):
            return last if last == "ZeroRedundancyOptimizer" else "optimizer"
        if last in COLLECTIVES and full not in (
            f"torch.distributed.{last}",
            f"torch.distributed.distributed_c10d.{last}",
        ):
            return f"functional.{last}"  # those return a new tensor
        return last
    if full.startswith(("torch.nn.parallel.", "torch.nn.DataParallel")):
        return "DDP" if last == DDP else last
    if is_optimizer(full):
        return "optimizer"
    if full.startswith("torch.nn.utils.clip"):
        return last
    if full.startswith("torch.nn.") and full.count(".") == 2 and last[:1].isupper():
        return last if last in ("ModuleList", "ModuleDict", "SyncBatchNorm", "Module") else "nn"
    return _OTHERS.get(full, "")


_OTHERS = {
    "torch.set_default_device": "set_default_device",
    "torch.set_default_tensor_type": "set_default_tensor_type",
    "torch.cuda.set_device": "set_device",
    "torch.accelerator.set_device_index": "set_device",
    "torch.xpu.set_device": "set_device",
    "torch.accelerator.device_index": "device_index",
    "torch.cuda.device": "cuda.device",
    "torch.device": "device",
    "copy.deepcopy": "deepcopy",
    "torch.load": "torch.load",
    "torch.save": "torch.save",
    "torch.compile": "torch.compile",
    "torch.utils.data.DataLoader": "DataLoader",
    "torch.utils.data.dataloader.DataLoader": "DataLoader",
    "torch.utils.data.DistributedSampler": "DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler": "DistributedSampler",
    "torch.amp.GradScaler": "GradScaler",
    "torch.amp.grad_scaler.GradScaler": "GradScaler",
    "torch.cuda.amp.GradScaler": "GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler": "GradScaler",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": "convert_sync_batchnorm",
    "torch.utils.checkpoint.checkpoint": "checkpoint",
    "torch.autograd.grad": "autograd.grad",
    "torch.cuda.manual_seed": "manual_seed",
    "torch.cuda.manual_seed_all": "manual_seed",
    "os.makedirs": "makedirs",
    "os.mkdir": "makedirs",
    "accelerate.Accelerator": "Accelerator",
    "accelerate.accelerator.Accelerator": "Accelerator",
    "peft.get_peft_model": "get_peft_model",
    "muon.Muon": "optimizer",
    "torch_optimizer.Shampoo": "optimizer",
    "pytorch_optimizer.Shampoo": "optimizer",
    "pytorch_optimizer.ScalableShampoo": "optimizer",
    "pytorch_optimizer.SOAP": "optimizer",
    "pytorch_optimizer.Muon": "optimizer",
    "distributed_shampoo.DistributedShampoo": "optimizer",
    "galore_torch.GaLoreAdamW": "optimizer",
    "transformers.Adafactor": "optimizer",
    "transformers.optimization.Adafactor": "optimizer",
    "torch.utils.checkpoint.checkpoint_sequential": "checkpoint",
    "torch.multiprocessing.spawn": "spawn",
    "torch.multiprocessing.start_processes": "spawn",
    "torch.multiprocessing.set_start_method": "set_start_method",
    "multiprocessing.set_start_method": "set_start_method",
    "torch.utils.data.random_split": "random_split",
    "torch.manual_seed": "manual_seed",
    "threading.Thread": "Thread",
    "threading.Timer": "Thread",
    "concurrent.futures.ThreadPoolExecutor": "ThreadPool",
    "os.environ.setdefault": "environ.setdefault",
    "os.environ.update": "environ.update",
    "os.putenv": "putenv",
}


def is_optimizer(full: str) -> bool:
    """Whether a full name is that of an optimizer's class."""
    return (
        full.startswith(_OPTIMIZERS)
        and full[full.rfind(".") + 1 :][:1].isupper()
        and not any(part in full for part in _NO_OPTIMIZERS)
    )
