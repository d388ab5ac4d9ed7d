# /// failure
# planted = "a plain tensor is added to a DTensor, without any FSDP"
# expect = "dtensor_mixed"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
mask = torch.ones(6, 6)
weights = distribute_tensor(torch.ones(6, 6), mesh, [Shard(0)]) + mask
