# /// pattern
# id = "fsdp2-tied-weights"
# title = "Tied embedding and head in one FSDP2 group"
# topics = ["tied-weights", "wrapping"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = ""
# architecture = "tied"
# form = "fsdp2"
# test = "test_fsdp2.py::test_tied_weights"
# processes = 2
# ///
"""Shard a model whose head uses the embedding's tensor: both modules in one group."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_tied(
    model: nn.Module,
    layers: Iterable[nn.Module],
    embedding: nn.Module,
    norm: nn.Module,
    head: nn.Module,
    mesh: DeviceMesh,
) -> nn.Module:
    # Tie before sharding: fully_shard replaces each parameter under all names that it has in the group. Tied later, the
    # head would get the plain tensor or the shard of the moment.
    if embedding.weight is not head.weight:
        raise ValueError("tie the weights before sharding")

    for layer in layers:
        fully_shard(layer, mesh=mesh)

    # One group for both names. In two groups, the tensor would be sharded twice, its two halves of the gradient never
    # added (PyTorch 2.12 and later raise instead). The group stays gathered from the embedding until the backward has
    # reached the embedding again: that is the price of tying.
    fully_shard([embedding, norm, head], mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    return model


# Leaving both to the root does the same, with anything else that the root holds.
