"""Ranks with different numbers of batches under DDP's Join; a sharded optimizer where the numbers are equal."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def build(process_group):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    return DistributedDataParallel(net, process_group=process_group)


def batches(rank, number):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(number):
        x = torch.randn(4, 6, generator=generator)
        yield x, x.sum(dim=1, keepdim=True)


def uneven(model, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        with Join([model]):
            for x, y in batches(rank, 4 + rank):  # one more on each further rank
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()


def even(model, rank):
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-2)
    for x, y in batches(rank, 4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, os.devnull)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group(list(range(dist.get_world_size())))
    model = build(group)
    uneven(model, rank)
    even(model, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
