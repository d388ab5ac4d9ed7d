"""The model is built without memory; each module gets its values when it is sharded."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

DEVICE = torch.device("cpu")


class Projection(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(fan_out, fan_in))
        self.bias = nn.Parameter(torch.empty(fan_out))
        self.reset_parameters()

    def reset_parameters(self):
        # Values that don't depend on the order in which modules are initialised.
        with torch.no_grad():
            self.weight.fill_(0.5 / self.weight.shape[1])
            self.bias.fill_(0.01)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = Projection(dim, 2 * dim)
        self.down = Projection(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, dim=8, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.head = Projection(dim, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def init_module(module: nn.Module) -> None:
    module.to_empty(device=DEVICE, recurse=False)
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()


def main():
    dist.init_process_group("gloo")
    with torch.device("meta"):
        model = Model()
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        param_init_fn=init_module,
        device_id=DEVICE,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    history = []
    for step in range(4):
        x = torch.rand(6, 8, generator=torch.Generator().manual_seed(19 * step + dist.get_rank()))
        loss = (model(x).squeeze(1) - x.max(dim=1).values).square().mean()
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
