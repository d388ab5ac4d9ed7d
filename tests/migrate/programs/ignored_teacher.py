"""Distillation: the teacher is frozen, kept whole on every rank and left out of the sharding."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(dim, dim)

    def forward(self, x):
        return x + F.elu(self.w(x))


class Student(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.body = nn.Sequential(Block(dim), Block(dim))
        self.teacher = nn.Sequential(Block(dim), nn.Linear(dim, dim))
        self.teacher.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher(x)
        return F.mse_loss(self.body(x), wanted)


def wrapped(student: Student) -> FSDP:
    return FSDP(
        student,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        ignored_modules=[student.teacher],
        device_id=torch.device("cpu"),
    )


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(64)
    model = wrapped(Student())
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    history = []
    for step in range(5):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(5 * step + dist.get_rank()))
        loss = model(x)
        loss.backward()
        norm = model.clip_grad_norm_(0.2)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
