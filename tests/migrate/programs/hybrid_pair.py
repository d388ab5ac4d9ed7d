"""Hybrid sharding by a pair of process groups from torch.distributed's own helper for subgroups."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)

    def forward(self, x):
        return x + torch.tanh(self.lin(x))


def build_groups(group_size):
    shard_group, _ = dist.new_subgroups(group_size=group_size)
    ranks = [list(range(i, dist.get_world_size(), group_size)) for i in range(group_size)]
    replicate_group, _ = dist.new_subgroups_by_enumeration(ranks)
    return shard_group, replicate_group


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(15)
    shard_group, replicate_group = build_groups(int(os.environ.get("GPUS_PER_NODE", 2)))
    model = nn.Sequential(nn.Linear(4, 8), Layer(8), Layer(8), nn.Linear(8, 2))
    model = FSDP(
        model,
        process_group=(shard_group, replicate_group),
        sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    history = []
    for step in range(4):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(41 * step + dist.get_rank()))
        loss = (model(x) - x[:, 2:]).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
