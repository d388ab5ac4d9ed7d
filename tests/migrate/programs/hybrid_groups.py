"""Hybrid sharding with process groups of the program's own: shards within a pair, replicas across pairs."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

PAIR = 2


class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.sigmoid(self.gate(x)) * self.value(x)


def make_groups(rank, world):
    """All ranks make all groups; each gets the two that it belongs to."""
    shard_group = replicate_group = None
    for first in range(0, world, PAIR):
        ranks = list(range(first, first + PAIR))
        group = dist.new_group(ranks)
        if rank in ranks:
            shard_group = group
    for offset in range(PAIR):
        ranks = list(range(offset, world, PAIR))
        group = dist.new_group(ranks)
        if rank in ranks:
            replicate_group = group
    return shard_group, replicate_group


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = make_groups(rank, world)
    torch.manual_seed(4)
    model = FullyShardedDataParallel(
        nn.Sequential(nn.Linear(7, 11), Gate(11), Gate(11), nn.Linear(11, 2)),
        process_group=groups,
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({Gate}),
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    history = []
    for step in range(4):
        x = torch.randn(6, 7, generator=torch.Generator().manual_seed(47 * step + rank))
        loss = nn.functional.mse_loss(model(x), x[:, :2].cos())
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
