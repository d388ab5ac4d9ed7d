"""Models and looks that several files of witnesses share."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from witness_tools import three_layers

WORLD, RANK = 8, 5  # of the fake process group


def warned(call):
    """What a call returned, and its warnings as "Category: message"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [f"{item.category.__name__}: {item.message}" for item in caught]


def collectives(call):
    """Names and numbers of the collectives of a call, as CommDebugMode counts them."""
    with CommDebugMode() as mode:
        call()
    return {str(name).split(".")[-1]: number for name, number in mode.get_comm_counts().items()}


def two_layers(mesh, **options):
    """Two layers, each in a group of its own, and the root."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def two_groups(mesh, **options):
    """Three layers: the first two in groups of their own, the third with the root."""
    model = three_layers()
    for layer in model[:2]:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def step(model):
    model(torch.ones(2, 16)).sum().backward()
    return model


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        return self.down(self.up(x).relu())


def plain():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))


def models(mesh):
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model.load_state_dict(reference.state_dict())
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return reference, fully_shard(model, mesh=mesh)
