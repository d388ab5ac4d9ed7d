"""The constructor as a functools.partial, used for encoder and decoder and for the whole."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

wrap_fsdp = partial(
    FSDP,
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,  # keep the parameters between forward and backward
    device_id=torch.device("cpu"),
    use_orig_params=True,
)


class Stage(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.body(x)


class AutoEncoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, width), Stage(width))
        self.decoder = nn.Sequential(Stage(width), nn.Linear(width, 6))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(8)
    model = AutoEncoder()
    model.encoder = wrap_fsdp(model.encoder)
    model.decoder = wrap_fsdp(model.decoder, auto_wrap_policy=ModuleWrapPolicy({Stage}))
    model = wrap_fsdp(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    history = []
    for step in range(4):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(31 * step + rank))
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
