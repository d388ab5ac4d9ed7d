# /// pattern
# id = "sub-groups-mesh"
# title = "Sub-groups of a device mesh"
# topics = ["sub-groups", "device-mesh"]
# follows = ["torch.distributed.device_mesh.init_device_mesh", "torch.distributed.device_mesh.DeviceMesh"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_mesh_has_the_groups_of_both_dimensions"
# processes = 4
# [run]
# '"cuda"' = '"cpu"'
# ///
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def hosts_and_gpus(gpus_per_host):
    """The group of this host's GPUs, and the group of the GPUs with the same number on all hosts."""
    hosts = dist.get_world_size() // gpus_per_host
    # One call makes the groups of both dimensions, in the same order on every rank; with new_group that would be
    # hosts + gpus_per_host calls. The last dimension holds consecutive ranks, which torchrun puts on one host.
    mesh = init_device_mesh("cuda", (hosts, gpus_per_host), mesh_dim_names=("across", "within"))
    return mesh.get_group("within"), mesh.get_group("across")
