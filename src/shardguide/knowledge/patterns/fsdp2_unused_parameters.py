# /// pattern
# id = "fsdp2-unused-parameters"
# title = "Parameters that only some ranks use in a step"
# topics = ["uneven-inputs-fsdp", "wrapping", "frozen-parameters"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_reduce_scatter_unused_params"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_unused_parameters"
# processes = 2
# ///
"""Shard a model with branches that depend on the data: experts without tokens, a modality that is absent."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_branching(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # A layer is what runs on every rank, with all its branches inside. A group of its own for a branch would be gathered
    # only where the branch runs, and the other ranks would never join that all-gather.
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    model = fully_shard(model, mesh=mesh)
    # A rank reduces what has a gradient, so ranks that used different branches would reduce different tensors. Branches
    # of equal size are then summed with each other, without an error. With this, a zero gradient goes in for what a
    # rank has not used, as find_unused_parameters does it in DDP.
    model.set_reduce_scatter_unused_params(True)
    return model


# Where the release lacks the method, use every parameter on every rank: in the layer's forward add 0.0 * p.sum() to the
# output for each parameter p of the branches that did not run.
