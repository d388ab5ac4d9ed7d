"""no_sync beside another context, the norm used in a condition, the strategy chosen in the call."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
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


def main(full=True):
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    raw = net()
    total = sum(p.numel() for p in raw.parameters())
    model = FSDP(
        raw,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.FULL_SHARD if full else ShardingStrategy.SHARD_GRAD_OP,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = [(float(total), 0.0)]
    for step in range(4):
        x = batch(step)
        if step % 2 == 0:
            with model.no_sync(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                loss = (model(x) - x[:, :2]).square().mean() / 2
                loss.backward()
            continue
        loss = (model(x) - x[:, :2]).square().mean() / 2
        loss.backward()
        if (norm := model.clip_grad_norm_(0.5)) > 0.1:
            print("large", f"{norm:.3f}")
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), float(norm)))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
