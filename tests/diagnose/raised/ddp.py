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


@case
def ddp_sync_batch_norm_cpu(fixed: bool) -> None:
    norm = nn.BatchNorm1d(4) if fixed else nn.SyncBatchNorm(4)
    nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), norm))


@case
def ddp_pickled(fixed: bool) -> None:
    import pickle

    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4), process_group=dist.new_group([0, 1]))
    pickle.dumps(wrapped.module if fixed else wrapped)


@case
def ddp_private_options(fixed: bool) -> None:
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    wrapped._set_ddp_runtime_logging_sample_rate(1 if fixed else 0)


@case
def ddp_static_graph_changed(fixed: bool) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, given: torch.Tensor, both: bool) -> torch.Tensor:
            out = self.one(given)
            return self.two(out) if both else out

    wrapped = nn.parallel.DistributedDataParallel(Two(), static_graph=not fixed, find_unused_parameters=fixed)
    for step in range(3):
        wrapped(torch.randn(2, 4), both=step > 0).sum().backward()


@case
def zero_overlap(fixed: bool) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    kind = torch.optim.Adam if fixed else torch.optim.LBFGS
    ZeroRedundancyOptimizer(nn.Linear(4, 4).parameters(), kind, overlap_with_ddp=True, lr=0.1)
