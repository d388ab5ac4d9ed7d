"""Adapters beside frozen layers: a policy for the trained leaves, another for the layers, and both together."""

import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.adapter = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.relu(self.base(x)) + 0.1 * self.adapter(x)


class Model(nn.Module):
    def __init__(self, dim=10):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim) for _ in range(3)])
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def fsdp_auto_wrap_policy(layer_class):
    def lambda_policy_fn(module):
        return (
            len(list(module.named_children())) == 0
            and getattr(module, "weight", None) is not None
            and module.weight.requires_grad
        )

    lambda_policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda_policy_fn)
    layer_policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer_class})
    return functools.partial(_or_policy, policies=[lambda_policy, layer_policy])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(14)
    model = Model()
    for layer in model.layers:
        layer.base.requires_grad_(False)
    model = FSDP(model, auto_wrap_policy=fsdp_auto_wrap_policy(Layer), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    history = []
    for step in range(4):
        x = torch.randn(8, 10, generator=torch.Generator().manual_seed(59 * step + dist.get_rank()))
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
