# /// failure
# planted = "a mesh of 8 on 4 ranks"
# expect = "mesh_larger_than_world"
# ranks = "any"
# world = 4
# ///
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("replicate", "shard"))  # planted
