"""Activations of each block are recomputed in backward."""

import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.fc1 = nn.Linear(dim, 3 * dim)
        self.fc2 = nn.Linear(3 * dim, dim)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


class Model(nn.Module):
    def __init__(self, dim=12, depth=3):
        super().__init__()
        self.inp = nn.Linear(5, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, 5)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


non_reentrant_wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1234)
    model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    # After wrapping: the checkpoint goes inside the unit of its block.
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=non_reentrant_wrapper, check_fn=lambda module: isinstance(module, Block)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    history = []
    for step in range(4):
        x = torch.randn(10, 5, generator=torch.Generator().manual_seed(11 * step + rank))
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(0.7)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
