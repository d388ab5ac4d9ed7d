"""Gradients and optimizer state sharded, several micro-batches to a step, communication only with the last one."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.gate = nn.Linear(size, size, bias=False)

    def forward(self, x):
        return torch.tanh(self.linear(x)) * torch.sigmoid(self.gate(x)) + x


class Net(nn.Module):
    def __init__(self, size=16, depth=4):
        super().__init__()
        self.layers = nn.Sequential(*[Layer(size) for _ in range(depth)])
        self.out = nn.Linear(size, 1)

    def forward(self, x):
        return self.out(self.layers(x)).squeeze(-1)


def parse(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--clip", type=float, default=0.5)
    return parser.parse_args(argv)


def train(args, rank):
    torch.manual_seed(7)
    model = FullyShardedDataParallel(
        Net(),
        auto_wrap_policy=ModuleWrapPolicy([Layer]),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    history = []
    for _ in range(args.steps):
        total = 0.0
        for micro in range(args.accumulate):
            x = torch.randn(4, 16, generator=generator)
            target = x.sum(dim=1)
            last = micro == args.accumulate - 1
            # Until the last micro-batch gradients stay on this rank.
            with contextlib.nullcontext() if last else model.no_sync():
                loss = (model(x) - target).square().mean() / args.accumulate
                loss.backward()
            total += loss.item()
        norm = model.clip_grad_norm_(args.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        history.append((total, float(norm)))
    return history


def main(argv=None):
    args = parse(argv)
    dist.init_process_group(backend="gloo")
    try:
        return train(args, dist.get_rank())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
