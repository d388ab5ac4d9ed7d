"""Convolutions in bfloat16; FSDP leaves batch norms in float32."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Stage(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(2, 6, 3, padding=1)
        self.stages = nn.Sequential(Stage(6), Stage(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean(dim=-1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(38)
    model = FSDP(
        Net(),
        auto_wrap_policy=ModuleWrapPolicy({Stage}),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.float32
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    history = []
    for step in range(4):
        x = torch.randn(8, 2, 10, generator=torch.Generator().manual_seed(71 * step + dist.get_rank()))
        labels = x.mean(dim=(1, 2)).gt(0).long()
        loss = nn.functional.cross_entropy(model(x).float(), labels)
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
