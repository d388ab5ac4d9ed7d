"""All arguments about overlap, and positional process_group; nothing of it changes the numbers."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Highway(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.carry = nn.Linear(size, size)

    def forward(self, x):
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


def run(group):
    rank = dist.get_rank(group)
    torch.manual_seed(6)
    network = nn.Sequential(nn.Linear(5, 14), *[Highway(14) for _ in range(4)], nn.Linear(14, 1))
    model = FSDP(
        network,
        group,
        ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({Highway}),
        backward_prefetch=BackwardPrefetch.BACKWARD_POST,  # less memory at the peak
        forward_prefetch=True,
        limit_all_gathers=True,
        use_orig_params=False,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    rows = []
    for step in range(4):
        x = torch.randn(9, 5, generator=torch.Generator().manual_seed(23 * step + rank))
        loss = nn.functional.l1_loss(model(x).squeeze(-1), x.norm(dim=-1))
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        rows.append((loss.item(), norm.item()))
    return rows


def main():
    dist.init_process_group("gloo")
    try:
        return run(dist.group.WORLD)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
