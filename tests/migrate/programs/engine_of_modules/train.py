"""An engine class in one module, the set-up in another, resumed from a distributed checkpoint."""
import argparse

import torch
import torch.distributed as dist
from distributed import shard
from engine import Engine
from torch import nn


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n)
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, n=10):
        super().__init__()
        self.inp = nn.Linear(4, n)
        self.layers = nn.Sequential(*[Layer(n) for _ in range(3)])
        self.out = nn.Linear(n, 2)

    def forward(self, x):
        return self.out(self.layers(self.inp(x)))


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    parser.add_argument("--strategy", default="SHARD_GRAD_OP")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    model = shard(Net(), Layer, args.strategy, recompute=True)
    engine = Engine(model, torch.optim.AdamW, lr=0.01)
    if args.resume:
        # the optimizer has no state before its first step: make one, so that there is something to load into
        for p in engine.model.parameters():
            p.grad = torch.zeros_like(p)
        lr = [g["lr"] for g in engine.optimizer.param_groups]
        for g in engine.optimizer.param_groups:
            g["lr"] = 0.0
        engine.optimizer.step()
        engine.optimizer.zero_grad()
        for g, value in zip(engine.optimizer.param_groups, lr):
            g["lr"] = value
        engine.load(args.resume)
    history = []
    for step in range(args.first, args.first + args.steps):
        for micro in range(2):
            x = torch.randn(5, 4, generator=torch.Generator().manual_seed(61 * step + 7 * micro + dist.get_rank()))
            loss, norm = engine.step(x, x[:, :2] * x[:, 2:])
        history.append((loss.item(), norm.item()))
    if args.save:
        engine.save(args.save)
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
