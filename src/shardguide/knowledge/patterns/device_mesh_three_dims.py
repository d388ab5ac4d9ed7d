# /// pattern
# id = "device-mesh-three-dims"
# title = "A 3-D mesh: replicate and shard for FSDP, tensor parallelism inside"
# topics = ["device-mesh", "tensor-parallel", "hybrid-sharding"]
# follows = ["torch.distributed.device_mesh.DeviceMesh", "https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_device_mesh_three_dims"
# processes = 4
# not_run = ""
# [run]
# '"cuda"' = '"cpu"'
# ///
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def build(replicate, shard, tensor_parallel):
    # The tensor-parallel ranks come last: neighbours, because they communicate in every layer.
    shape, names = (replicate, shard, tensor_parallel), ("replicate", "shard", "tp")
    return init_device_mesh("cuda", shape, mesh_dim_names=names)


def for_fsdp(mesh):
    return mesh["replicate", "shard"]  # 2-D: fully_shard replicates over its first and shards over its second dimension


def for_tensor_parallelism(mesh):
    return mesh["tp"]


def data_rank(mesh):
    # Ranks of one tensor-parallel group compute one batch together, so all of them must load the same one.
    shards = mesh.size(1)
    return mesh.get_local_rank("replicate") * shards + mesh.get_local_rank("shard"), mesh.size(0) * shards


def groups_of_this_rank(mesh):
    """For the log: messages about a hanging collective name ranks of the world."""
    groups = zip(mesh.mesh_dim_names, mesh.get_all_groups(), strict=True)
    return {name: dist.get_process_group_ranks(group) for name, group in groups}


def same_on_tensor_parallel_ranks(tensor, mesh):
    """A check for a new data loader: True where all ranks of the tensor-parallel group hold the same values."""
    group = mesh["tp"].get_group()
    first = tensor.clone()
    dist.broadcast(first, src=dist.get_global_rank(group, 0), group=group)  # src counts in the world, not in the group
    return bool((first == tensor).all())
