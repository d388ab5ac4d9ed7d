# /// failure
# planted = "get_group of a two-dimensional mesh without a dimension"
# expect = "mesh_get_group_without_dim"
# ranks = "any"
# world = 4
# ///
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
group = mesh.get_group()  # planted
