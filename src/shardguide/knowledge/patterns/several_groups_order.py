# /// pattern
# id = "several-groups-order"
# title = "Collectives on two groups, one after the other"
# topics = ["several-groups", "async-collectives"]
# follows = ["torch.distributed.new_group", "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html#using-multiple-nccl-communicators-concurrently"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_two_groups_one_after_the_other"
# processes = 4
# ///
import torch.distributed as dist


def average_over_both(tensor, within, across):
    """Mean over ``within``, then over ``across``: two groups that this rank is in (hosts and their GPUs, for example)."""
    work = dist.all_reduce(tensor, group=within, async_op=True)
    # Wait before the next group starts. Two communicators at work on one GPU share its space: if rank 0 has launched
    # A and waits for B while rank 1 has launched B and waits for A, neither ends. Since 2.5 the documentation asks for
    # wait() of the asynchronous forms; before, for the end on the device (torch.cuda.synchronize()).
    work.wait()
    # And the same order everywhere: no rank may start with the other group, whatever branch it comes from.
    work = dist.all_reduce(tensor, group=across, async_op=True)
    work.wait()
    return tensor / (dist.get_world_size(within) * dist.get_world_size(across))
