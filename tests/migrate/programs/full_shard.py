"""A small classifier, every block sharded on its own."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

STEPS = 6
WIDTH = 24
DEVICE = torch.device("cpu")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(10, WIDTH)
        self.blocks = nn.ModuleList([Block(WIDTH) for _ in range(3)])
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step: int, rank: int):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 10, generator=made), torch.randint(0, 5, (8,), generator=made)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = FSDP(
        Classifier(),
        sharding_strategy=ShardingStrategy.FULL_SHARD,  # parameters, gradients and optimizer state
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=DEVICE,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    history = []
    for step in range(STEPS):
        x, y = batch(step, rank)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}, gradient norm {norm.item():.4f}")

    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
