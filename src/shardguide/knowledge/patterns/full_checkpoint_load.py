# /// pattern
# id = "full-checkpoint-load"
# title = "Load a whole checkpoint, read by rank 0 only, into a model built on the meta device"
# topics = ["load-full-checkpoint", "meta-device-init", "state-dict-helpers"]
# follows = ["torch.distributed.checkpoint.state_dict.set_model_state_dict", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = "Memory is allocated by to_empty before loading, so that non-persistent buffers, which no checkpoint holds, are dealt with explicitly."
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_full_checkpoint_load"
# processes = 2
# not_run = ""
# own = ["init_buffers"]
# [run]
# '"cuda"' = '"cpu"'
# [before."2.6"]
# "from torch.distributed.fsdp import fully_shard" = "from torch.distributed._composable.fsdp import fully_shard"
# ///
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

# Rank 0 broadcasts one whole tensor after the other; each rank keeps its part. So no rank but 0 reads, and a device needs room
# for one whole tensor at a time.
FROM_RANK_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def build(make_model, mesh):
    with torch.device("meta"):  # shapes only: no rank ever holds the whole model
        model = make_model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cuda")  # memory for this rank's shards, not yet values
    return model


def load_full(model, path):
    # mmap: pages are read when a tensor is sent, not the whole file at once.
    full = torch.load(path, map_location="cpu", mmap=True, weights_only=True)["model"] if dist.get_rank() == 0 else {}
    set_model_state_dict(model, full, options=FROM_RANK_0)  # all ranks, with {} on the others
    model.init_buffers()  # your method: non-persistent buffers (rotary tables) are in no checkpoint, and hold garbage by now


def load_full_optimizer(model, optimizer, path):
    full = torch.load(path, map_location="cpu", weights_only=True)["optimizer"] if dist.get_rank() == 0 else {}
    set_optimizer_state_dict(model, optimizer, optim_state_dict=full, options=FROM_RANK_0)
