# /// pattern
# id = "device-mesh"
# title = "One mesh over nodes and devices, its sub-meshes and their groups"
# topics = ["device-mesh", "hybrid-sharding", "sub-groups"]
# follows = ["torch.distributed.device_mesh.init_device_mesh", "https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html"]
# departs = ""
# architecture = ""
# form = "c10d"
# test = "test_tensor_parallel.py::test_device_mesh"
# processes = 4
# not_run = ""
# [run]
# '"cuda"' = '"cpu"'
# ///
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def two_levels(per_node):
    # Ranks fill the mesh row by row. torchrun numbers a node's processes one after the other, so a row is a node: the LAST
    # dimension is the near one. Put what communicates most there (sharding, tensor parallelism).
    shape = (dist.get_world_size() // per_node, per_node)
    # Creates the process groups of all dimensions; every rank calls it, with the same shape.
    return init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))


def within_node(mesh):
    return mesh["shard"]  # 1-D: the row of this rank. Pass it to fully_shard, parallelize_module, or take its group


def average_between_nodes(tensor, mesh):
    # For a plain collective: the group of one dimension, here the ranks with the same place on every node.
    group = mesh["replicate"].get_group()
    dist.all_reduce(tensor, group=group)
    return tensor / group.size()


def where_am_i(mesh):
    # Ranks within a dimension: these select data (replicate, shard), not the global rank.
    return mesh.get_local_rank("replicate"), mesh.get_local_rank("shard")
