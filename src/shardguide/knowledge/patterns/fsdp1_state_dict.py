# /// pattern
# id = "fsdp1-state-dict"
# title = "FSDP1: the whole model and optimizer in one file"
# topics = ["fsdp1-state-dicts", "state-dict-helpers", "load-full-checkpoint"]
# follows = ["torch.distributed.checkpoint.state_dict.get_state_dict", "torch.distributed.checkpoint.state_dict.StateDictOptions"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_state_dict"
# processes = 2
# not_run = ""
# # Where the device is the CPU, moving there copies nothing, and FSDP1 then frees (parameters) or overwrites (optimizer states)
# # the memory that it has handed out: a crash, and exp_avg with the values of exp_avg_sq. With a GPU there is a real copy.
# [run]
# "cpu_offload=True" = "cpu_offload=False"
# ///
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict


def save(model, optimizer, path):
    # Gathered by all ranks, kept by rank 0, in CPU memory. Names are those of the model before it was wrapped.
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        torch.save({"model": model_state, "optimizer": optimizer_state}, path)
    dist.barrier()


def load(model, optimizer, path):
    # Each rank reads the file and keeps its part: simple, but host memory for one copy per rank. Sharded checkpoints
    # (torch.distributed.checkpoint) need neither one place for everything nor the gathering.
    full = torch.load(path, map_location="cpu", weights_only=True)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=full["model"],
        optim_state_dict=full["optimizer"],
        options=StateDictOptions(full_state_dict=True),
    )
