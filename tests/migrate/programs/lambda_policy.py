"""Units by a function that looks at each module."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy


class Adapter(nn.Module):
    shard_me = True

    def __init__(self, width):
        super().__init__()
        self.down = nn.Linear(width, 4)
        self.up = nn.Linear(4, width)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))


class Body(nn.Module):
    def __init__(self, width=14):
        super().__init__()
        self.first = Adapter(width)
        self.middle = nn.Linear(width, width)
        self.last = Adapter(width)

    def forward(self, x):
        return self.last(torch.tanh(self.middle(self.first(x))))


def wants_unit(module: nn.Module) -> bool:
    return getattr(module, "shard_me", False)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(99)
    model = FSDP(
        Body(),
        auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=wants_unit),
        device_id=torch.device("cpu"),
    )
    opt = optim.RMSprop(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(4 + dist.get_rank())
    out = []
    for _ in range(5):
        x = torch.randn(5, 14, generator=gen)
        loss = torch.nn.functional.smooth_l1_loss(model(x), x.roll(1, dims=1))
        loss.backward()
        out.append((loss.item(), model.clip_grad_norm_(1.0).item()))
        opt.step()
        opt.zero_grad()
    dist.destroy_process_group()
    return out


if __name__ == "__main__":
    main()
