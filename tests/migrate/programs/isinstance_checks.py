"""Helpers that serve wrapped and plain models alike."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, dim)
        self.fc2 = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


class Model(nn.Module):
    def __init__(self, dim=12, depth=2):
        super().__init__()
        self.classes = 3
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, self.classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def unwrap(model):
    return model.module if isinstance(model, FSDP) else model


def clip(model, limit):
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(limit)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), limit)


def no_sync(model, last):
    if isinstance(model, FSDP) and not last:
        return model.no_sync()
    return contextlib.nullcontext()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    units = len(FSDP.fsdp_modules(model))
    print(f"{units} units, {unwrap(model).classes} classes")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        total = 0.0
        for micro in range(2):
            generator = torch.Generator().manual_seed(37 * step + 5 * micro + dist.get_rank())
            x = torch.randn(6, 12, generator=generator)
            with no_sync(model, last=micro == 1):
                loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1)) / 2
                loss.backward()
            total += loss.item()
        norm = clip(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((total, float(norm)))
    history.append((float(units), 0.0))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
