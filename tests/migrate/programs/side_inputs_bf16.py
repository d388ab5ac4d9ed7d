"""Blocks take a second input in float32, which FSDP does not cast: only the root casts, and only its own inputs."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


def net():
    return nn.Sequential(nn.Linear(5, 8), Block(8), Block(8), nn.Linear(8, 2))


def batch(step):
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(83 * step + dist.get_rank()))


SEEN = []


class Scaled(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, side):
        SEEN.append((str(x.dtype), str(side.dtype)))
        return x + torch.relu(self.fc(x)) * side.to(x.dtype)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.blocks = nn.ModuleList([Scaled(8), Scaled(8)])
        self.last = nn.Linear(8, 2)
        self.register_buffer("side", torch.rand(8))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x, self.side)
        return self.last(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    mp = MixedPrecision(param_dtype=torch.bfloat16)
    model = FSDP(
        Model(), auto_wrap_policy=ModuleWrapPolicy({Scaled}), mixed_precision=mp, device_id=torch.device("cpu")
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        x = batch(step)
        loss = (model(x).float() - x[:, :2]).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    history.append((float(SEEN[0] == ("torch.bfloat16", "torch.float32")), 0.0))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
