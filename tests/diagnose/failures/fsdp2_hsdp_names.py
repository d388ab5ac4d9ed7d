# /// failure
# planted = "a two-dimensional mesh without names"
# expect = "fsdp2_mesh_dims"
# ranks = "any"
# world = 4
# ///
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2))
fully_shard(nn.Linear(4, 4), mesh=mesh)  # planted
