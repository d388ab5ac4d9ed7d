# /// failure
# planted = "a dimension of the mesh that does not exist"
# expect = "mesh_slice_names"
# ranks = "any"
# world = 4
# layout = "files"
# ///
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
shard = mesh["fsdp"]  # planted
