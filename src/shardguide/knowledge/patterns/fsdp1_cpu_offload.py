# /// pattern
# id = "fsdp1-cpu-offload"
# title = "FSDP1: parameters, gradients and optimizer on the CPU"
# topics = ["cpu-offload", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.CPUOffload"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = ""
# processes = 0
# not_run = "needs an accelerator: the first forward pins the shards' memory, which raises 'Cannot access accelerator device when none is available.' on a host without one (2.13.0)."
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import torch
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model, layer_class):
    # Shards, gradients and (because it follows the parameters) the optimizer live in CPU memory; one layer at a time is on
    # the device. The optimizer steps on the CPU: take a fused or foreach one.
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        cpu_offload=CPUOffload(offload_params=True),
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )


# With gradient accumulation use no_sync() for all micro-batches but the last: accumulating outside of it gives wrong results
# with this option, because a new reduced gradient replaces the one on the CPU instead of being added.
