# /// pattern
# id = "fsdp2-hybrid-mesh"
# title = "Hybrid sharding (HSDP): a named mesh of two dimensions"
# topics = ["hybrid-sharding", "device-mesh", "sharding-strategies"]
# follows = ["torch.distributed.fsdp.fully_shard", "torch.distributed.device_mesh.init_device_mesh", "https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2.py::test_hybrid_mesh"
# processes = 4
# [run]
# '"cuda"' = '"cpu"'
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Shard within a node, replicate across nodes: FSDP2's form of HYBRID_SHARD is the shape of the mesh."""

from collections.abc import Iterable

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


def make_mesh(ranks_per_node: int) -> DeviceMesh:
    # Replicate first, shard second, in this order always. torchrun numbers the ranks of a node consecutively, so the
    # second dimension lies within a node. fully_shard asks for the names.
    nodes = dist.get_world_size() // ranks_per_node
    return init_device_mesh("cuda", (nodes, ranks_per_node), mesh_dim_names=("replicate", "shard"))


def shard_hybrid(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # The replicas are not made equal: start from the same weights on every rank, or they stay different for ever.
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


# Gradients are reduce-scattered within the node and all-reduced across nodes; the mean is over all ranks. All ranks
# need different data, the replicas' too: the sampler gets dist.get_world_size() and dist.get_rank().
