"""The optimizer is made before wrapping, which use_orig_params allows: FSDP1 keeps the parameters that it has."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


def groups(model):
    """Weight decay for matrices; while the parameters still have their shapes."""
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(44)
    model = nn.Sequential(nn.Linear(6, 8), Block(8), Block(8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(groups(model), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, device_id=torch.device("cpu"))
    history = []
    for step in range(5):
        x = torch.randn(6, 6, generator=torch.Generator().manual_seed(73 * step + rank))
        loss = nn.functional.mse_loss(model(x), x[:, :2].exp())
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
