# /// failure
# planted = "FSDP1 HYBRID_SHARD with a one-dimensional mesh"
# expect = "fsdp1_hybrid_groups"
# ranks = "any"
# ///
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

mesh = init_device_mesh("cpu", (2,))
model = FSDP(  # planted
    nn.Linear(4, 4), device_id=torch.device("cpu"), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD
)
