"""The model is an attribute; FSDP is called as a class and asked for, and the module inside is looked at."""

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


class Wrapper:
    def __init__(self):
        self.model = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
        self.units = [m for m in self.model.modules() if isinstance(m, FSDP)]
        self.first = self.model.module[0]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def names(self):
        return [n.replace("_fsdp_wrapped_module.", "") for n, _ in self.model.module.named_modules()]

    def step(self, x):
        loss = (self.model(x) - x[:, :2]).square().mean()
        loss.backward()
        norm = FSDP.clip_grad_norm_(self.model, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), norm.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    w = Wrapper()
    history = [(float(len(w.units)), float(w.first.out_features))]
    history += [w.step(batch(step)) for step in range(3)]
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
