"""A function that wraps whatever it is given, with keywords handed through."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
import functools


def fsdp_wrapper(module, device="cpu", **kwargs):
    """FSDP with the settings that all our models share."""
    kwargs.setdefault("use_orig_params", True)
    return FSDP(module, device_id=torch.device(device), **kwargs)


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv = nn.Conv1d(ch, ch, 3, padding=1)
        self.norm = nn.GroupNorm(2, ch)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Generator(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.up = nn.Linear(3, ch * 4)
        self.blocks = nn.Sequential(ResBlock(ch), ResBlock(ch))
        self.to_out = nn.Conv1d(ch, 1, 1)
        self.ch = ch

    def forward(self, z):
        return self.to_out(self.blocks(self.up(z).view(-1, self.ch, 4)))


class Discriminator(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.blocks = nn.Sequential(ResBlock(ch), ResBlock(ch))
        self.out = nn.Linear(ch * 4, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)).flatten(1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    generator = fsdp_wrapper(
        Generator(),
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={ResBlock}),
    )
    discriminator = fsdp_wrapper(
        Discriminator(),
        auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=150),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    )
    g_optim = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    d_optim = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    history = []
    for step in range(4):
        g = torch.Generator().manual_seed(7 * step + rank)
        z, real = torch.randn(6, 3, generator=g), torch.randn(6, 1, 4, generator=g).cumsum(2)
        # discriminator
        d_optim.zero_grad()
        d_loss = nn.functional.softplus(discriminator(generator(z).detach())).mean()
        d_loss = d_loss + nn.functional.softplus(-discriminator(real)).mean()
        d_loss.backward()
        d_norm = discriminator.clip_grad_norm_(1.0)
        d_optim.step()
        # generator
        g_optim.zero_grad()
        g_loss = nn.functional.softplus(-discriminator(generator(z))).mean()
        g_loss.backward()
        g_norm = generator.clip_grad_norm_(1.0)
        g_optim.step()
        history.append((d_loss.item() + g_loss.item(), d_norm.item() + g_norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
