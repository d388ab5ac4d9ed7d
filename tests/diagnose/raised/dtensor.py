"""DTensor, device meshes and tensor parallelism."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from .common import case, mesh, x


@case
def dtensor_view_of_sharded_dim(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    tensor = distribute_tensor(torch.randn(5, 4), mesh(), [Shard(0)])
    if fixed:
        tensor = tensor.redistribute(placements=[Replicate()])
    tensor.view(20)


@case
def dtensor_in_place(fixed: bool) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate

    tensor = DTensor.from_local(torch.ones(4), mesh(), [Partial()])
    if fixed:
        tensor = tensor.redistribute(placements=[Replicate()])
    tensor.relu_()


@case
def dtensor_other_mesh(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    tensor = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(0)])
    tensor.redistribute(mesh() if fixed else mesh((2, 1), ("a", "b")), [Replicate()] * (1 if fixed else 2))


@case
def clip_grad_mixed_mesh(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    both = mesh((2, 1), ("dp", "tp"))
    one = nn.Parameter(distribute_tensor(torch.randn(4, 4), both["dp"], [Shard(0)]))
    two = nn.Parameter(distribute_tensor(torch.randn(4, 4), both, [Shard(0), Replicate()]))
    for parameter in (one, two):
        parameter.grad = parameter.detach().clone()
    for group in [[one], [two]] if fixed else [[one, two]]:
        torch.nn.utils.clip_grad_norm_(group, 1.0)


@case
def dtensor_partial(fixed: bool) -> None:
    from torch.distributed.tensor import Partial, Replicate, distribute_tensor

    distribute_tensor(torch.randn(4), mesh(), [Replicate()]).redistribute(
        placements=[Replicate() if fixed else Partial()]
    )


@case
def dtensor_placements(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    distribute_tensor(torch.randn(4), mesh((2, 1), ("a", "b")), [Shard(0), Replicate()] if fixed else [Shard(0)])


@case
def dtensor_from_local(fixed: bool) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    value = torch.randn(4, requires_grad=True) * 2
    distribute_tensor(value.detach() if fixed else value, mesh(), [Shard(0)])


@case
def dtensor_distribute_module(fixed: bool) -> None:
    from torch.distributed.tensor import distribute_module

    layer = distribute_module(nn.Linear(4, 4), mesh())
    if not fixed:
        distribute_module(layer, mesh())


@case
def dtensor_no_strategy(fixed: bool) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    tensor = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(0)])
    given = tensor.full_tensor() if fixed else tensor
    torch.cdist(given, given)


@case
def dtensor_data_dependent(fixed: bool) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    tensor = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(0)])
    torch.nonzero(tensor.full_tensor() if fixed else tensor)


@case
def dtensor_mixed(fixed: bool) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    tensor = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(0)])
    mask = torch.ones(4, 4, dtype=torch.bool)
    torch.where(distribute_tensor(mask, mesh(), [Shard(0)]) if fixed else mask, tensor, tensor)


@case
def dtensor_local_map(fixed: bool) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.experimental import local_map

    tensor = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(0)])
    places = ([Shard(0)], [Shard(0)]) if fixed else ([Shard(0)],)
    local_map(lambda a, b: a + b, out_placements=[Shard(0)], in_placements=places, device_mesh=mesh())(tensor, tensor)


@case
def mesh_larger_than_world(fixed: bool) -> None:
    mesh((2,) if fixed else (8,), None)


@case
def mesh_slice_names(fixed: bool) -> None:
    mesh((2, 1), ("dp", "tp"))["dp" if fixed else "pp"]


@case
def mesh_init_arguments(fixed: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    init_device_mesh("cpu" if fixed else "cpu:0", (2,))


@case
def mesh_get_group_without_dim(fixed: bool) -> None:
    mesh((2, 1), ("dp", "tp")).get_group(*(["dp"] if fixed else []))


@case
def mesh_flatten(fixed: bool) -> None:
    mesh((2, 1), ("dp", "tp") if fixed else None)._flatten("both")


@case
def mesh_from_group(fixed: bool) -> None:
    from torch.distributed.device_mesh import DeviceMesh

    DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh=[0, 1] if fixed else [0, 3])


# Tensor parallelism


@case
def tp_module_kind(fixed: bool) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    parallelize_module(model, mesh(), {"0" if fixed else "1": ColwiseParallel()})


@case
def tp_plan_type(fixed: bool) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    parallelize_module(nn.Linear(8, 8), mesh(), ColwiseParallel() if fixed else "colwise")


@case
def tp_plan_does_nothing(fixed: bool) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    parallelize_module(nn.Sequential(nn.Linear(8, 8)), mesh(), {"0" if fixed else "proj": ColwiseParallel()})


@case
def tp_prepare_layouts(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import PrepareModuleInput, parallelize_module

    style = PrepareModuleInput(
        input_layouts=(Shard(0),) if fixed else (Shard(0), None),
        desired_input_layouts=(Replicate(),) if fixed else (Replicate(), None),
        use_local_output=True,
    )
    parallelize_module(nn.Linear(8, 8), mesh(), style)(x())


@case
def tp_loss_parallel(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import loss_parallel

    where = mesh() if fixed else mesh((1, 2), ("dp", "tp"))
    places = [Shard(1)] if fixed else [Replicate(), Shard(1)]
    logits = distribute_tensor(torch.randn(4, 8), where, places)
    target = distribute_tensor(torch.arange(4), where, [Replicate()] * where.ndim)
    with loss_parallel():
        F.cross_entropy(logits, target)


@case
def dtensor_visualize(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor
    from torch.distributed.tensor.debug import visualize_sharding

    if not fixed:
        visualize_sharding(distribute_tensor(torch.randn(2, 2, 2), mesh(), [Replicate()]))


@case
def tp_explicit_redistribution(fixed: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor._utils import ExplicitRedistributionContext

    one = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(1)])
    two = distribute_tensor(torch.randn(4, 4), mesh(), [Shard(1)])
    with ExplicitRedistributionContext():
        if fixed:
            one, two = one.redistribute(placements=[Replicate()]), two.redistribute(placements=[Replicate()])
        one @ two


@case
def context_parallel_arguments(fixed: bool) -> None:
    from torch.distributed.tensor.experimental import context_parallel

    buffers = [torch.randn(1, 8), torch.randn(1, 8)]
    with context_parallel(mesh(), buffers=buffers, buffer_seq_dims=[1, 1] if fixed else [1]):
        pass


@case
def mesh_no_groups(fixed: bool) -> None:
    from torch.distributed.device_mesh import DeviceMesh

    DeviceMesh("cpu", [0, 1], _init_backend=fixed).get_group()
