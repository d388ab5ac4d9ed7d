# /// pattern
# id = "init-timeouts"
# title = "A short timeout for training, a long one for preparing data"
# topics = ["timeouts", "process-group-setup"]
# follows = ["torch.distributed.init_process_group", "torch.distributed.new_group"]
# departs = ""
# form = "c10d"
# test = "test_init_forms.py::test_the_long_group_waits_where_the_short_one_gives_up"
# processes = 2
# [run]
# '"nccl"' = '"gloo"'
# ///
from datetime import timedelta

import torch.distributed as dist


def start(timeout=timedelta(minutes=10), patience=timedelta(hours=2)):
    """The group for training, and a second one that may wait for as long as one rank prepares the data."""
    # A rank that waits longer than this in a collective gives up, and the job ends instead of burning GPU hours.
    # It must cover the slowest step that all others wait for: loading, compiling, a checkpoint on a busy disk.
    dist.init_process_group("nccl", timeout=timeout)
    # A timeout belongs to its group. Gloo waits on the CPU: no NCCL watchdog counts these hours.
    return dist.new_group(backend="gloo", timeout=patience)


def rank_zero_first(prepare, waiting):
    """Run ``prepare()`` on rank 0 while the others wait."""
    if dist.get_rank() == 0:
        prepare()
    dist.barrier(group=waiting)
