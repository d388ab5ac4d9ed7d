"""Hybrid sharding without resharding after forward, on a mesh that the program makes itself."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

REPLICAS = 2


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, x):
        return x + self.scale * torch.sin(self.inner(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList(Cell() for _ in range(4))
        self.readout = nn.Linear(12, 2)

    def forward(self, x):
        for cell in self.cells:
            x = cell(x)
        return self.readout(x)


def setup():
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", (REPLICAS, world_size // REPLICAS), mesh_dim_names=("replicate", "shard"))
    return rank, mesh


def main():
    rank, mesh = setup()
    torch.manual_seed(11)
    model = Model()
    model = FSDP(
        model,
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,
        auto_wrap_policy=ModuleWrapPolicy({Cell}),
        device_id=torch.device("cpu"),
        limit_all_gathers=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    record = []
    for step in range(5):
        generator = torch.Generator().manual_seed(step * 17 + rank)
        x = torch.randn(6, 12, generator=generator)
        y = torch.randn(6, 2, generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        norm = model.clip_grad_norm_(10.0)
        optimizer.step()
        optimizer.zero_grad()
        record.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return record


if __name__ == "__main__":
    main()
