# /// pattern
# id = "fsdp2-forward-method"
# title = "A method other than forward on a sharded model"
# topics = ["forward-methods", "evaluation"]
# follows = ["torch.distributed.fsdp.register_fsdp_forward_method"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_forward_method"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Let FSDP gather parameters for ``model.encode(...)`` and the like, which do not go through forward."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


def shard_with_methods(
    model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh, methods: Iterable[str]
) -> nn.Module:
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for method in methods:
        # FSDP's hooks belong to module(...). A method that uses the module's own parameters directly finds shards
        # (DTensors) and fails, unless it is registered. It must be called on all ranks, like forward.
        register_fsdp_forward_method(model, method)
    return model
