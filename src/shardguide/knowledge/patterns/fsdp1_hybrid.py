# /// pattern
# id = "fsdp1-hybrid"
# title = "FSDP1: shard within a node, replicate between nodes"
# topics = ["hybrid-sharding", "sharding-strategies", "device-mesh", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.ShardingStrategy", "https://docs.pytorch.org/tutorials/recipes/distributed_device_mesh.html"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_hybrid"
# processes = 4
# not_run = ""
# [run]
# '"cuda"' = '"cpu"'
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model, layer_class, per_node):
    # First dimension: replicas, second: shards, the ranks of one node. Given the other way round nothing complains, and the
    # all-gathers of every layer cross the slow network.
    shape = (dist.get_world_size() // per_node, per_node)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_mesh=mesh,
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
