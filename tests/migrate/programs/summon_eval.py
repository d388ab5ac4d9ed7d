"""The full parameters are looked at between epochs: the largest weight is reported and the model evaluated."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.fc(x))


def make(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 10), Block(10), Block(10), nn.Linear(10, 2))


def weight_norm(model):
    """The norm over all parameters, as if there were one process."""
    with FSDP.summon_full_params(model, writeback=False):
        return sum(p.square().sum().item() for p in model.parameters()) ** 0.5


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    loss = nn.functional.cross_entropy(model(x), y)
    model.train()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = FSDP(
        make(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"), use_orig_params=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    held_out = torch.randn(16, 6, generator=torch.Generator().manual_seed(999))
    answers = held_out[:, :2].argmax(dim=1)
    history = []
    for epoch in range(2):
        for step in range(3):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * epoch + 10 * step + rank))
            loss = nn.functional.cross_entropy(model(x), x[:, :2].argmax(dim=1))
            loss.backward()
            norm = model.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
            history.append((loss.item(), norm.item()))
        history.append((evaluate(model, held_out, answers), weight_norm(model)))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
