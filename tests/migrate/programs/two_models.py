"""A generator and a discriminator, each sharded, each with its optimizer."""

from contextlib import ExitStack

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Hidden(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return torch.relu(self.norm(self.fc(x)))


def make(fan_in, fan_out, dim=12):
    return nn.Sequential(nn.Linear(fan_in, dim), Hidden(dim), Hidden(dim), nn.Linear(dim, fan_out))


def shard(module: nn.Module, use_orig_params: bool = False) -> FSDP:
    settings = {
        "auto_wrap_policy": ModuleWrapPolicy({Hidden}),
        "sharding_strategy": ShardingStrategy.FULL_SHARD,
        "device_id": torch.device("cpu"),
    }
    return FSDP(module, use_orig_params=use_orig_params, **settings)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(81)
    generator = shard(make(4, 6), use_orig_params=True)
    discriminator = shard(make(6, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
    bce = nn.BCEWithLogitsLoss()
    draw = torch.Generator().manual_seed(rank)
    history = []
    for _ in range(3):
        # Real and generated samples in two micro-batches; only the second one communicates.
        total = 0.0
        for real in (True, False):
            with ExitStack() as stack:
                if real:
                    stack.enter_context(discriminator.no_sync())
                x = (
                    torch.randn(5, 6, generator=draw) + 1
                    if real
                    else generator(torch.randn(5, 4, generator=draw)).detach()
                )
                d_loss = bce(discriminator(x), torch.full((5, 1), float(real))) / 2
                d_loss.backward()
            total += d_loss.item()
        d_norm = discriminator.clip_grad_norm_(1.0, norm_type=1.0)
        d_optimizer.step()
        d_optimizer.zero_grad()
        g_loss = bce(discriminator(generator(torch.randn(5, 4, generator=draw))), torch.ones(5, 1))
        g_loss.backward()
        g_norm = generator.clip_grad_norm_(1.0)
        g_optimizer.step()
        g_optimizer.zero_grad()
        d_optimizer.zero_grad()
        history += [(total, d_norm.item()), (g_loss.item(), g_norm.item())]
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
