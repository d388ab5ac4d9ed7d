# /// failure
# planted = "gradients on two meshes are clipped in one call"
# expect = "clip_grad_mixed_mesh"
# ranks = "any"
# world = 4
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model[0], mesh=mesh["a"])
fully_shard(model[1], mesh=mesh["b"])
model(torch.ones(2, 8)).sum().backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # planted
