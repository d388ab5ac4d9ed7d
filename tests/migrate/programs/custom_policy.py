"""A policy of the program's own: which modules are units, and one of them with another strategy."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy


class Block(nn.Module):
    def __init__(self, dim, last=False):
        super().__init__()
        self.last = last
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.fc(x))


def policy(module):
    if isinstance(module, Block):
        # What the last block gathers in forward is needed at once in backward.
        return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP} if module.last else True
    return False


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(90)
    net = nn.Sequential(nn.Linear(5, 9), Block(9), Block(9), Block(9, last=True), nn.Linear(9, 1))
    model = FSDP(net, auto_wrap_policy=CustomPolicy(policy), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(4):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(53 * step + rank))
        loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(2.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
