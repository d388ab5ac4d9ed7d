"""Small models and their sharding by two processes over Gloo, for the tests that make mistakes with FSDP for real."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

CPU = torch.device("cpu")


class Net(nn.Module):
    """Two layers and a way past forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def encode(self, x):
        return self.first(x)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Tied(nn.Module):
    """An embedding and a head of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.middle(self.embed(x)))


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def mesh():
    return init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))


def sharded(model: nn.Module, *parts: str) -> nn.Module:
    for part in parts or ("first", "last"):
        fully_shard(getattr(model, part), mesh=mesh())
    return fully_shard(model, mesh=mesh())


def fsdp1(model: nn.Module, **options: object) -> FSDP:
    return FSDP(model, device_id=CPU, **options)


def batch() -> torch.Tensor:
    return torch.full((2, 4), 1.0 + dist.get_rank())


def run(body, world: int = 2):
    """What the body gave on each rank, with a process group; "Kind: message" where it raised."""

    def whole(rank: int):
        gloo.init()
        warnings.simplefilter("ignore")
        try:
            return body()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    return gloo.run(world, whole)


def fails(body, words: str) -> None:
    said = run(body)
    assert all(isinstance(one, str) and words in one for one in said), said
