# /// pattern
# id = "fsdp2-wrap-moe"
# title = "fully_shard on a mixture of experts: which dimension of the experts to split"
# topics = ["wrapping", "shard-placement"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = ""
# architecture = "moe"
# form = "fsdp2"
# test = "test_fsdp2.py::test_wrap_moe"
# processes = 4
# ///
"""Wrap a mixture of experts whose expert weights are one tensor of shape (experts, a, b) per projection."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard


def shard_moe(model: nn.Module, blocks: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    ranks = mesh.shape[-1]  # the last dimension is the one that shards, of a 1-D and of a hybrid mesh

    def place(parameter: nn.Parameter) -> Shard | None:
        # Dimension 0, the default, gives whole experts to ranks. With more ranks than experts some ranks hold nothing,
        # yet every rank pads its share to that of the largest. Another dimension must divide evenly.
        if parameter.ndim == 3 and parameter.shape[0] % ranks and parameter.shape[1] % ranks == 0:
            return Shard(1)
        return None  # the default, Shard(0)

    for block in blocks:
        # Attention, router and experts of a block in one group: all experts are gathered, whatever the router chooses.
        # Only expert parallelism avoids that.
        fully_shard(block, mesh=mesh, shard_placement_fn=place)
    fully_shard(model, mesh=mesh)
    return model


# Experts that are modules of their own (a ModuleList) may get no token on one rank and some on another. Then the ranks
# reduce different gradients, and hang or fail: see the pattern fsdp2-unused-parameters.
