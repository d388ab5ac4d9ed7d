"""Arguments that optimizers, schedulers, modules, loaders, hooks and functional collectives refuse."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from .common import case, mesh, shard, x


def _sgd(parameters: Any, **options: Any) -> Any:
    return torch.optim.SGD(parameters, **{"lr": 0.1, **options})


@case
def optimizer_hyperparameter(fixed: bool) -> None:
    _sgd(nn.Linear(2, 2).parameters(), lr=0.1 if fixed else -0.1)


@case
def optimizer_implementation_conflict(fixed: bool) -> None:
    torch.optim.AdamW(nn.Linear(2, 2).parameters(), fused=True, foreach=None if fixed else True)


@case
def optimizer_sparse_gradient(fixed: bool) -> None:
    table = nn.Embedding(4, 4, sparse=not fixed)
    optimizer = torch.optim.AdamW(table.parameters())
    table(torch.tensor([1])).sum().backward()
    optimizer.step()


@case
def optimizer_groups_form(fixed: bool) -> None:
    parameters = list(nn.Linear(2, 2).parameters())
    _sgd([{"params": parameters if fixed else set(parameters)}])


@case
def optimizer_step_is_no_tensor(fixed: bool) -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        state["step"] = torch.tensor(3.0) if fixed else 3
    optimizer.step()


@case
def scheduler_resumed_without_initial_lr(fixed: bool) -> None:
    optimizer = _sgd(nn.Linear(2, 2).parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 2, last_epoch=-1 if fixed else 3)


@case
def scheduler_arguments(fixed: bool) -> None:
    batches, accumulation = 3, 4
    steps = batches // accumulation
    optimizer = _sgd(nn.Linear(2, 2).parameters())
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=max(1, steps) if fixed else steps)


@case
def module_parameter_assigned(fixed: bool) -> None:
    from torch.distributed.tensor import distribute_tensor

    layer = nn.Linear(8, 8)
    shard(layer)
    value = torch.zeros(8, 8)
    if fixed:
        with torch.no_grad():
            layer.weight.copy_(distribute_tensor(value, layer.weight.device_mesh, layer.weight.placements))
    else:
        layer.weight = value


class Late(nn.Module):
    def __init__(self, fixed: bool) -> None:
        if fixed:
            super().__init__()
        self.layer = nn.Linear(2, 2)


@case
def module_init_not_called(fixed: bool) -> None:
    Late(fixed)


@case
def module_backward_hook_kinds(fixed: bool) -> None:
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *_: None)
    (layer.register_full_backward_hook if fixed else layer.register_backward_hook)(lambda *_: None)


@case
def sampler_rank_invalid(fixed: bool) -> None:
    local, node = (torch.distributed.get_rank(), 2) if fixed else (4, 2)
    torch.utils.data.DistributedSampler([1, 2], num_replicas=node, rank=local)


@case
def loader_options(fixed: bool) -> None:
    torch.utils.data.DataLoader([1], multiprocessing_context="spawn", num_workers=1 if fixed else 0)


@case
def ddp_zero_overlap_hook(fixed: bool) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    if fixed:
        model(torch.randn(2, 2)).sum().backward()
        zero.step()
    else:
        hook_with_zero_step(lambda *_: None, model, zero)


@case
def ddp_powersgd_start(fixed: bool) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

    PowerSGDState(torch.distributed.group.WORLD, start_powerSGD_iter=2 if fixed else 1)


@case
def model_averaging_arguments(fixed: bool) -> None:
    from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

    HierarchicalModelAverager(OrderedDict([(2, 2)] if fixed else []), warmup_steps=0)


@case
def replicate_mesh(fixed: bool) -> None:
    from torch.distributed._composable.replicate_with_fsdp import replicate

    both = mesh((2, 1), ("dp", "tp"))
    replicate(nn.Linear(8, 8), mesh=both["dp"] if fixed else both)


@case
def functional_collective_group(fixed: bool) -> None:
    from torch.distributed._functional_collectives import all_reduce

    all_reduce(x(), "sum", (mesh(), 0 if fixed else "dp"))


@case
def functional_collective_gradient(fixed: bool) -> None:
    from torch.distributed._functional_collectives import all_reduce

    all_reduce(x().requires_grad_(), "sum" if fixed else "max", mesh()).sum().backward()
