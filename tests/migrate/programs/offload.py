"""Parameters and gradients rest in CPU memory between uses."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(71)
    model = FSDP(
        nn.Sequential(Block(10), Block(10), nn.Linear(10, 1)),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        cpu_offload=CPUOffload(offload_params=True),
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    history = []
    for step in range(4):
        x = torch.randn(5, 10, generator=torch.Generator().manual_seed(43 * step + dist.get_rank()))
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.amax(dim=1))
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
