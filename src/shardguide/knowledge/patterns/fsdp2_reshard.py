# /// pattern
# id = "fsdp2-reshard"
# title = "reshard_after_forward: True, False or a number of ranks"
# topics = ["reshard-after-forward", "sharding-strategies"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2.py::test_reshard"
# processes = 4
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""What becomes of the gathered parameters between a layer's forward and its backward."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_least_memory(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # Freed after forward, gathered again in backward: FSDP1's FULL_SHARD.
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # The root's own parameters are needed at once when the backward starts: freeing them only costs a collective.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def shard_least_communication(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # Kept until the backward is done: FSDP1's SHARD_GRAD_OP. One all-gather per layer and step instead of two, and all
    # gathered parameters in memory at the end of the forward.
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def shard_between(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh, ranks: int) -> nn.Module:
    # Split over this many ranks after forward, say those of one node: the backward gathers within the node. It must
    # divide the mesh and lie between 1 and its size: 1 means False, the size itself means True. Every call makes a mesh
    # and its process groups, which take GPU memory of their own under NCCL; for that reason not on many small layers.
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=ranks)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model
