# /// failure
# planted = "rank 6 of 8 stops in its second step on a mesh of 2 x 4"
# expect = "fr_rank_missing"
# ranks = [6]
# world = 8
# layout = "files"
# dump = 8
# ///
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
model = fully_shard(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), mesh=mesh)
for step in range(3):
    if step == 1 and dist.get_rank() == 6:
        time.sleep(60)
    model(torch.ones(2, 8)).sum().backward()
