"""DistributedDataParallel, Join and ZeroRedundancyOptimizer."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .common import case, mesh


@case
def ddp_no_trainable_parameters(fixed: bool) -> None:
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4).requires_grad_(fixed))


@case
def ddp_devices(fixed: bool) -> None:
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4), device_ids=None if fixed else [0])


@case
def ddp_group_or_mesh(fixed: bool) -> None:
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4), device_mesh=mesh() if fixed else mesh((2, 1), ("a", "b")))


@case
def ddp_lazy_module(fixed: bool) -> None:
    layer = nn.LazyLinear(4)
    if fixed:
        layer(torch.randn(2, 4))
    nn.parallel.DistributedDataParallel(layer)


@case
def ddp_unused_parameters(fixed: bool) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4)})
    model.forward = lambda given: model["used"](given)
    wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=fixed)
    for _ in range(2):
        wrapped(torch.randn(2, 4)).sum().backward()


@case
def ddp_reentrant_checkpoint(fixed: bool) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(4, 4)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                given = torch.utils.checkpoint.checkpoint(self.proj, given, use_reentrant=not fixed)
            return given

    wrapped = nn.parallel.DistributedDataParallel(Twice(), find_unused_parameters=True)
    wrapped(torch.randn(2, 4, requires_grad=True)).sum().backward()


@case
def ddp_comm_hook(fixed: bool) -> None:
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))

    def hook(state: Any, bucket: int) -> Any:
        return torch.futures.Future()

    if fixed:
        hook.__annotations__ = {}
    wrapped.register_comm_hook(None, hook)


@case
def ddp_model_differs_between_ranks(fixed: bool) -> None:
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4, bias=fixed or dist.get_rank() == 0))


# Join and ZeroRedundancyOptimizer


@case
def join_throw_early(fixed: bool) -> None:
    from torch.distributed.algorithms.join import Join

    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    with Join([wrapped], throw_on_early_termination=not fixed):
        for _ in range(1 + dist.get_rank()):
            wrapped(torch.randn(2, 4)).sum().backward()


@case
def join_not_initialised(fixed: bool) -> None:
    from torch.distributed.algorithms.join import Join, Joinable, JoinHook

    class Counter(Joinable):
        def __init__(self) -> None:
            if fixed:
                super().__init__()

        def join_hook(self, **kwargs: Any) -> JoinHook:
            return JoinHook()

        @property
        def join_device(self) -> torch.device:
            return torch.device("cpu")

        @property
        def join_process_group(self) -> Any:
            return dist.group.WORLD

    Join.notify_join_context(Counter())


@case
def join_groups(fixed: bool) -> None:
    from torch.distributed.algorithms.join import Join

    other = dist.new_group([0, 1])
    one = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    two = nn.parallel.DistributedDataParallel(nn.Linear(4, 4), process_group=None if fixed else other)
    with Join([one, two]):
        pass


@case
def zero_not_consolidated(fixed: bool) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    optimizer = ZeroRedundancyOptimizer(nn.Linear(4, 4).parameters(), torch.optim.Adam, lr=0.1)
    if fixed:
        optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() == 0:
            optimizer.state_dict()
    else:
        optimizer.state_dict()


@case
def zero_params(fixed: bool) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    parameters = [
        nn.Parameter(torch.ones(2)),
        nn.Parameter(torch.ones(2, dtype=torch.float32 if fixed else torch.float64)),
    ]
    ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=0.1)
