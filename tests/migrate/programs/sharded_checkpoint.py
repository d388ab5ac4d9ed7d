"""Model and optimizer saved in shards with torch.distributed.checkpoint, and resumed."""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.tanh(self.fc(x))


def build():
    torch.manual_seed(21)
    net = nn.Sequential(nn.Linear(4, 16), Block(), Block(), nn.Linear(16, 1))
    return FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))


def save(model, optimizer, folder):
    with FSDP.state_dict_type(
        model,
        StateDictType.SHARDED_STATE_DICT,
        ShardedStateDictConfig(offload_to_cpu=False),
        ShardedOptimStateDictConfig(offload_to_cpu=False),
    ):
        state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
    dcp.save(state, checkpoint_id=folder)


def load(model, optimizer, folder):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"])
        # The optimizer has no state yet: its shards are laid out as those of the model.
        optim_state = load_sharded_optimizer_state_dict(
            model_state_dict=state["model"],
            optimizer_key="optimizer",
            storage_reader=dcp.FileSystemReader(folder),
        )
        flattened = FSDP.optim_state_dict_to_load(model, optimizer, optim_state["optimizer"])
    optimizer.load_state_dict(flattened)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--resume")
    args = parser.parse_args(argv)

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if args.resume:
        load(model, optimizer, args.resume)

    history = []
    for step in range(args.first, args.first + args.steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * 31 + rank))
        loss = (model(x).squeeze(-1) - x.pow(2).sum(-1)).abs().mean()
        loss.backward()
        norm = model.clip_grad_norm_(5.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))

    if args.save:
        save(model, optimizer, args.save)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
