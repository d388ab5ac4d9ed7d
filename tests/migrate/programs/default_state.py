"""state_dict() without saying which: the full one; kept in memory as the best weights and loaded again."""

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


def net():
    return nn.Sequential(nn.Linear(5, 8), Block(8), Block(8), nn.Linear(8, 2))


def batch(step):
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(83 * step + dist.get_rank()))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    best = None
    for step in range(4):
        x = batch(step)
        loss = (model(x) - x[:, :2]).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
        if step == 1:
            best = {name: value.clone() for name, value in model.state_dict().items()}
    history.append((float(sum(v.numel() for v in best.values())), sum(v.norm().item() for v in best.values())))
    model.load_state_dict(best)
    x = batch(9)
    history.append(((model(x) - x[:, :2]).square().mean().item(), 0.0))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
