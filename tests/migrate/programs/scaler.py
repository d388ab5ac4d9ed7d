"""float16 with a gradient scaler that agrees over ranks."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.fc(x))


class Model(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.blocks = nn.Sequential(Block(dim), Block(dim), Block(dim))
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        return self.out(self.blocks(x))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(16)
    half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16)
    model = FSDP(
        Model(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=half, device_id=torch.device("cpu")
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scaler = ShardedGradScaler(device="cpu", init_scale=256.0)
    history = []
    for step in range(4):
        x = torch.randn(8, 12, generator=torch.Generator().manual_seed(29 * step + dist.get_rank()))
        loss = nn.functional.cross_entropy(model(x).float(), x[:, :3].argmax(dim=1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = model.clip_grad_norm_(1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
