"""Saving and loading the full model."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

fullstate_save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)


def save_model_checkpoint(model, rank, folder):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, fullstate_save_policy):
        cpu_state = model.state_dict()
    if rank == 0:
        torch.save(cpu_state, Path(folder) / "decoder.pt")
    dist.barrier()


def load_model_checkpoint(model, folder):
    """Into the model before it is sharded."""
    state = torch.load(Path(folder) / "decoder.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(state)
