# /// pattern
# id = "fsdp2-shard"
# title = "fully_shard: the layers one by one, then the root"
# topics = ["wrapping", "what-fsdp-does", "sharding-strategies"]
# follows = ["torch.distributed.fsdp.fully_shard", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_fsdp2.py::test_shard"
# processes = 2
# [run]
# '"cuda"' = '"cpu"'
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Shard a model over all ranks: its layers one by one, then the root, as the docstring of fully_shard says."""

from collections.abc import Iterable

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module, layers: Iterable[nn.Module]) -> nn.Module:
    # One dimension over all ranks: each parameter, its gradient and its optimizer states are split over all of them.
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))

    # Nothing is broadcast: each rank keeps its slice of the weights that it holds now. So build the same weights on
    # every rank (the same seed or the same checkpoint) before this.
    for layer in layers:
        # One call is one group: one all-gather just before the layer runs, one reduce-scatter after its backward.
        fully_shard(layer, mesh=mesh)

    # The root last, because a call takes the parameters that no earlier call took: here embedding, last norm and head.
    # Without the calls above, the root's group would be the whole model, gathered at once.
    fully_shard(model, mesh=mesh)
    return model


# Then train as usual, with two rules: make the optimizer after shard(), and call model(...), not model.forward(...),
# since the collectives are in the module's hooks.
