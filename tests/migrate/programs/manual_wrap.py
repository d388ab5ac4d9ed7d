"""Units chosen by hand: each stage is wrapped where the model is put together, and the whole at the end."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

CPU = torch.device("cpu")


class Stage(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)
        self.norm = nn.LayerNorm(fan_out)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)))


class Tower(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        stages = []
        for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
            stages.append(FSDP(Stage(fan_in, fan_out), device_id=CPU))
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(sizes[-1], 1)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    model = FSDP(Tower([6, 20, 20, 10]), device_id=CPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))

    points = torch.rand(48, 6, generator=torch.Generator().manual_seed(0))
    history = []
    for step in range(4):
        rows = points[step * 12 : (step + 1) * 12][rank::world]
        loss = torch.nn.functional.huber_loss(model(rows).squeeze(1), rows.sin().sum(1))
        loss.backward()
        norm = model.clip_grad_norm_(max_norm=0.3, norm_type=2.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
