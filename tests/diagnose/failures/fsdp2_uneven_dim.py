# /// failure
# planted = "a dimension that the number of ranks does not divide is sharded on dimension 1"
# expect = "fsdp2_uneven_dim"
# ranks = "any"
# layout = "srun"
# world = 3
# ///
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

dist.init_process_group("gloo")
model = nn.Linear(7, 8)
fully_shard(model, shard_placement_fn=lambda param: Shard(1) if param.ndim == 2 else None)  # planted
