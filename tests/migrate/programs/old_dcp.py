"""Sharded checkpoints with the first functions of torch.distributed.checkpoint."""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
import torch.nn as nn
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


def net():
    return nn.Sequential(nn.Linear(5, 8), Block(8), Block(8), nn.Linear(8, 2))


def batch(step):
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(83 * step + dist.get_rank()))


def save(model, optimizer, folder):
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    state_dict = {"model": model.state_dict()}
    state_dict["optim"] = FSDP.optim_state_dict(model, optimizer)
    dist_cp.save_state_dict(
        state_dict=state_dict,
        storage_writer=dist_cp.FileSystemWriter(folder),
        planner=DefaultSavePlanner(),
    )


def load(model, optimizer, folder):
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    state_dict = {"model": model.state_dict()}
    dist_cp.load_state_dict(
        state_dict=state_dict,
        storage_reader=dist_cp.FileSystemReader(folder),
        planner=DefaultLoadPlanner(),
    )
    model.load_state_dict(state_dict["model"])
    optim_state = load_sharded_optimizer_state_dict(
        model_state_dict=state_dict["model"], optimizer_key="optim", storage_reader=dist_cp.FileSystemReader(folder)
    )
    flattened_osd = FSDP.optim_state_dict_to_load(model, optimizer, optim_state["optim"])
    optimizer.load_state_dict(flattened_osd)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--resume")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    if args.resume:
        load(model, optimizer, args.resume)
    history = []
    for step in range(args.first, args.first + args.steps):
        x = batch(step)
        loss = (model(x) - x[:, :2]).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    if args.save:
        save(model, optimizer, args.save)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
