# /// pattern
# id = "fsdp1-state-dict-type"
# title = "FSDP1: the older form, a context that sets the state-dict type"
# topics = ["fsdp1-state-dicts"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type", "torch.distributed.fsdp.FullStateDictConfig"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_state_dict_type"
# processes = 2
# not_run = ""
# # Where the device is the CPU, moving there copies nothing, and FSDP1 then frees (parameters) or overwrites (optimizer states)
# # the memory that it has handed out: a crash, and exp_avg with the values of exp_avg_sq. With a GPU there is a real copy.
# [run]
# "offload_to_cpu=True" = "offload_to_cpu=False"
# ///
import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)


def save(model, optimizer, path):
    # What releases before 2.2 have. Since 2.4 the context warns that it is deprecated in favour of get_state_dict.
    # One config is for the model, the other for the optimizer: left out, every rank would end up with all optimizer states.
    settings = (
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    )
    with FullyShardedDataParallel.state_dict_type(model, *settings):
        model_state = model.state_dict()  # every rank; with rank0_only the others get {}
        optimizer_state = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"model": model_state, "optimizer": optimizer_state}, path)
    dist.barrier()


def load(model, optimizer, path):
    full = torch.load(path, map_location="cpu")
    # Reading by every rank wants rank0_only=False for both, the defaults.
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(full["model"])
        flat = FullyShardedDataParallel.optim_state_dict_to_load(
            model=model, optim=optimizer, optim_state_dict=full["optimizer"]
        )
    optimizer.load_state_dict(flat)  # easily forgotten: without it the optimizer starts anew, silently
