"""The kind of state dict is set once, right after wrapping; saving and loading come later and elsewhere."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


def prepare():
    torch.manual_seed(28)
    model = FSDP(
        nn.Sequential(nn.Linear(4, 8), Block(8), Block(8), nn.Linear(8, 1)),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
    )
    FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(rank0_only=False),
        FullOptimStateDictConfig(rank0_only=False),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer


def save(model, optimizer, path):
    state = model.state_dict()
    optim_state = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"model": state, "optimizer": optim_state}, path)
    dist.barrier()


def load(model, optimizer, path):
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"]))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--resume")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    model, optimizer = prepare()
    if args.resume:
        load(model, optimizer, os.path.join(args.resume, "all.pt"))
    history = []
    for step in range(args.first, args.first + args.steps):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(61 * step + dist.get_rank()))
        loss = nn.functional.mse_loss(model(x).squeeze(-1), x.std(dim=-1))
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    if args.save:
        save(model, optimizer, os.path.join(args.save, "all.pt"))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
