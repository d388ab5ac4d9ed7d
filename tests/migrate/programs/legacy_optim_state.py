"""An older program: the optimizer's state is gathered and scattered by the first methods that there were for it."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.sin(self.fc(x))


def save(model, optimizer, rank, folder):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        weights = model.state_dict()
    optim_state = FSDP.full_optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save(weights, os.path.join(folder, "model.pt"))
        torch.save(optim_state, os.path.join(folder, "optimizer.pt"))
    dist.barrier()


def load_model(model, folder):
    # Before wrapping, on every rank.
    model.load_state_dict(torch.load(os.path.join(folder, "model.pt"), map_location="cpu", weights_only=True))


def load_optimizer(model, optimizer, rank, folder):
    full = None
    if rank == 0:
        full = torch.load(os.path.join(folder, "optimizer.pt"), map_location="cpu", weights_only=True)
    sharded = FSDP.scatter_full_optim_state_dict(full, model)
    optimizer.load_state_dict(sharded)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--resume")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(15)
    model = nn.Sequential(nn.Linear(6, 10), Block(10), Block(10), nn.Linear(10, 1))
    if args.resume:
        load_model(model, args.resume)
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    if args.resume:
        load_optimizer(model, optimizer, rank, args.resume)
    history = []
    for step in range(args.first, args.first + args.steps):
        x = torch.randn(7, 6, generator=torch.Generator().manual_seed(67 * step + rank))
        loss = nn.functional.mse_loss(model(x).squeeze(-1), x.amin(dim=-1))
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    if args.save:
        save(model, optimizer, rank, args.save)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
