# /// pattern
# id = "sub-groups"
# title = "Sub-groups with new_group"
# topics = ["sub-groups"]
# follows = ["torch.distributed.new_group", "torch.distributed.get_global_rank"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_new_group_by_every_rank"
# processes = 4
# ///
import torch.distributed as dist


def consecutive_groups(size):
    """Ranks 0 to size-1 in one group, the next ``size`` in another, and so on: this rank's group."""
    mine = None
    for first in range(0, dist.get_world_size(), size):
        ranks = list(range(first, min(first + size, dist.get_world_size())))
        # Every rank makes every group, in the same order, also those that it is not in: new_group is a collective of
        # the whole world. Outsiders get a placeholder back, with which they must call nothing.
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine


def mean_over(tensor, group):
    dist.all_reduce(tensor, group=group)  # without group= the whole world would be meant, and would hang
    return tensor / dist.get_world_size(group)


def from_first(tensor, group):
    # src and dst are ranks of the world, whatever the group is.
    dist.broadcast(tensor, src=dist.get_global_rank(group, 0), group=group)
