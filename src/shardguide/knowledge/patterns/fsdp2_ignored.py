# /// pattern
# id = "fsdp2-ignored"
# title = "Parameters that FSDP2 leaves alone, and what is then yours to do"
# topics = ["ignored-parameters", "gradient-clipping", "optimizer"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_ignored"
# processes = 2
# ///
"""Leave some parameters whole on every rank (ignored_params), and keep them equal by hand."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_without(
    model: nn.Module,
    layers: Iterable[nn.Module],
    ignored: Sequence[nn.Parameter],  # a list, in the same order on every rank
    mesh: DeviceMesh,
    device: torch.device,
) -> torch.optim.Optimizer:
    for parameter in ignored:
        parameter.data = parameter.data.to(device)  # FSDP does not move them either
    # Every call needs it: the root's would otherwise take what the layers' left.
    for layer in layers:
        fully_shard(layer, mesh=mesh, ignored_params=set(ignored))
    fully_shard(model, mesh=mesh, ignored_params=set(ignored))

    # Two groups, as one fused or foreach operation cannot mix DTensors with plain tensors (RuntimeError). The same goes
    # for clip_grad_norm_: clip each group by itself, or compute the common norm by hand.
    kept = {id(parameter) for parameter in ignored}
    sharded = [parameter for parameter in model.parameters() if id(parameter) not in kept]
    return torch.optim.AdamW([{"params": sharded}, {"params": list(ignored)}], lr=1e-3)


def average_gradients(ignored: Sequence[nn.Parameter]) -> None:
    """Between the last backward and the step: FSDP does not reduce the gradients of ignored parameters."""
    # In the order of the list: a set of parameters is ordered by address, and each rank would reduce another tensor.
    for parameter in ignored:
        if parameter.grad is None:  # unused on this rank, perhaps not on the others
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())
