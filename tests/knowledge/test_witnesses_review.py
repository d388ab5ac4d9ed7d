"""Witnesses of claims that rules of the review rest on, by two processes over Gloo on PyTorch 2.13."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, ShardingStrategy  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: E402
from torch.distributed.fsdp import StateDictType as Type  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def on_two(body):
    def whole(rank):
        gloo.init()
        return body(rank)

    return gloo.run(2, whole)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def test_hybrid_shard_of_one_rank() -> None:
    def body(rank):
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            options = {"device_mesh": mesh, "sharding_strategy": ShardingStrategy.HYBRID_SHARD}
            model = FSDP(linear(), device_id=CPU, use_orig_params=True, **options)
        model(torch.full((1, 3), 1.0 + rank)).sum().backward()
        said = any("switching to use `NO_SHARD`" in str(one.message) for one in told)
        return said, model.sharding_strategy.name, model.weight.grad.sum().item()

    assert on_two(body) == [(True, "NO_SHARD", 3.0), (True, "NO_SHARD", 6.0)]  # halves of their own; summed, 9


def test_full_optimizer_state_on_the_cpu() -> None:
    def body(rank):
        warnings.simplefilter("ignore")
        model = FSDP(linear(), device_id=CPU, use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.full((1, 3), -2.0)).sum().backward()
        optimizer.step()
        out = []
        for offload in (True, False):
            config = FullOptimStateDictConfig(offload_to_cpu=offload, rank0_only=False)
            with FSDP.state_dict_type(model, Type.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False), config):
                state = FSDP.optim_state_dict(model, optimizer)["state"]["weight"]
            out.append((round(state["exp_avg"].sum().item(), 4), round(state["exp_avg_sq"].sum().item(), 4)))
        return out

    # Of six elements with gradient -2: 0.1 · -2 and 0.001 · 4 each.
    assert on_two(body) == [[(0.024, 0.024), (-1.2, 0.024)]] * 2


def test_all_gather_into_one_tensor() -> None:
    def body(rank):
        several, same = [torch.zeros(1) for _ in range(2)], [torch.zeros(1)] * 2
        for parts in (several, same):
            dist.all_gather(parts, torch.tensor([1.0 + rank]))
        return [[one.item() for one in parts] for parts in (several, same)]

    assert on_two(body) == [[[1.0, 2.0], [2.0, 2.0]]] * 2
