"""Collectives by hand: metrics, a ring, subgroups, work that overlaps."""

import datetime
import os

import torch
import torch.distributed as dist


def subgroups(world):
    """Every rank makes every group, in the same order."""
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    return halves, [dist.new_group(ranks) for ranks in halves]


def share_settings(rank, halves, groups):
    for ranks, group in zip(halves, groups):
        if rank in ranks:
            settings = torch.arange(3.0) if rank == ranks[0] else torch.zeros(3)
            dist.broadcast(settings, src=ranks[0], group=group)
    return settings


def average(value, world):
    total = value.detach().clone()
    dist.all_reduce(total)
    return total / world


def gather_lengths(length, world):
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(lengths, torch.tensor([length]))
    return [int(one) for one in lengths]


def gather_rows(rows, world):
    """Rows of different number on each rank: padded to the longest."""
    lengths = gather_lengths(len(rows), world)
    padded = torch.zeros(max(lengths), rows.shape[1])
    padded[: len(rows)] = rows
    parts = [torch.zeros_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([part[:length] for part, length in zip(parts, lengths)])


def ring(rank, world):
    outgoing = torch.full((4,), float(rank))
    incoming = torch.zeros(4)
    operations = [
        dist.P2POp(dist.isend, outgoing, (rank + 1) % world),
        dist.P2POp(dist.irecv, incoming, (rank - 1) % world),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return incoming


def overlapped(batch):
    gradient = batch.mean(dim=0)
    work = dist.all_reduce(gradient, async_op=True)
    local = batch.var(dim=0)
    work.wait()
    gradient.div_(dist.get_world_size())
    return gradient, local


def train(rank, world):
    weight = torch.zeros(3, requires_grad=True)
    generator = torch.Generator().manual_seed(rank)
    for step in range(5):
        x = torch.randn(4, 3, generator=generator)
        loss = (x @ weight - x.sum(dim=1)).square().mean()
        loss.backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad / world
        weight.grad = None
        mean = average(loss, world)
        if rank == 0:
            print(step, mean.item())
    return weight


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    rank, world = dist.get_rank(), dist.get_world_size()
    halves, groups = subgroups(world)
    share_settings(rank, halves, groups)
    gather_rows(torch.randn(2 + rank, 3), world)
    ring(rank, world)
    overlapped(torch.randn(8, 3))
    weight = train(rank, world)
    if rank == 0:
        torch.save(weight, os.devnull)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
