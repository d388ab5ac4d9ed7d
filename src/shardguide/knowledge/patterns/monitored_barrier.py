# /// pattern
# id = "monitored-barrier"
# title = "A barrier that names the ranks which did not come"
# topics = ["debugging-hangs", "timeouts"]
# follows = ["torch.distributed.monitored_barrier", "https://docs.pytorch.org/docs/stable/distributed.html#monitored-barrier"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_monitored_barrier_names_the_missing_rank"
# processes = 3
# ///
from datetime import timedelta

import torch.distributed as dist


def watch_group():
    # Only Gloo has this barrier. Beside an NCCL group it needs a group of its own, made once, by every rank.
    return dist.new_group(backend="gloo")


def all_here(group, timeout=timedelta(minutes=2)):
    """Put it before and after a step that hangs: the rank that is named took another way, or died."""
    # Rank 0 raises and lists the missing ranks; the ranks that came wait for rank 0 and then fail as well.
    # wait_all_ranks=False would stop at the first missing one. It is slow: a tool for the search, not for each step.
    dist.monitored_barrier(group, timeout=timeout, wait_all_ranks=True)
