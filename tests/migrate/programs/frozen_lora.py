"""Low-rank adapters are trained, the base stays frozen; both live in the same units thanks to use_orig_params."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class LoraLinear(nn.Module):
    def __init__(self, fan_in, fan_out, rank=2):
        super().__init__()
        self.base = nn.Linear(fan_in, fan_out)
        self.a = nn.Parameter(torch.randn(rank, fan_in) / fan_in**0.5)
        self.b = nn.Parameter(torch.zeros(fan_out, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = LoraLinear(dim, 2 * dim)
        self.down = LoraLinear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, dim=10, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def freeze_base(model):
    for name, parameter in model.named_parameters():
        if ".base." in name:
            parameter.requires_grad = False


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = Net()
    freeze_base(model)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if dist.get_rank() == 0:
        print(f"{trainable} parameters to train")
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    history = []
    for step in range(5):
        generator = torch.Generator().manual_seed(3 * step + 1000 * dist.get_rank())
        x = torch.randn(6, 10, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(dim=1))
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
