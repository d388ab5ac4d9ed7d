"""Units named with wrap() inside the model, switched on by enable_wrap()."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap


class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        # Without enable_wrap() around it wrap() returns the module as it is.
        self.left = wrap(nn.Linear(width, width))
        self.right = wrap(nn.Linear(width, width))

    def forward(self, x):
        return self.left(x) * torch.sigmoid(self.right(x)) + x


class Model(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.pairs = nn.Sequential(Pair(width), Pair(width))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.pairs(x))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(31)
    with enable_wrap(wrapper_cls=FSDP, device_id=torch.device("cpu")):
        model = wrap(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    history = []
    for step in range(4):
        x = torch.randn(6, 10, generator=torch.Generator().manual_seed(step + 40 * dist.get_rank()))
        loss = nn.functional.mse_loss(model(x), x[:, :2])
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
