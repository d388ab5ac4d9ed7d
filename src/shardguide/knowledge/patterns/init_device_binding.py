# /// pattern
# id = "init-device-binding"
# title = "One process per GPU, and NCCL told which"
# topics = ["device-binding", "process-group-setup"]
# follows = ["torch.distributed.init_process_group", "torch.distributed.barrier"]
# departs = ""
# form = "c10d"
# not_run = "needs CUDA: device_id must be an accelerator with an index, Gloo on a CPU takes none."
# [before."2.3"]
# '"nccl", device_id=device' = '"nccl"'
# ///
import os

import torch
import torch.distributed as dist


def bind():
    """Bind this process to its own GPU and start NCCL on it."""
    local_rank = int(os.environ["LOCAL_RANK"])  # the place on this host; RANK counts over all hosts
    # Two processes on one GPU end in deadlocks or in "invalid usage" of NCCL: refuse, rather than wrap around.
    if local_rank >= torch.cuda.device_count():
        raise RuntimeError(f"local rank {local_rank}, but this host shows {torch.cuda.device_count()} GPUs")
    device = torch.device("cuda", local_rank)
    # Before the first tensor: "cuda" without an index, and what NCCL uses where nothing else tells it, is this device.
    torch.cuda.set_device(device)
    # With device_id the communicator is built now, so a wrong network shows here and not in the middle of a step,
    # and sub-groups can be split off it instead of being built anew.
    dist.init_process_group("nccl", device_id=device)
    return device
