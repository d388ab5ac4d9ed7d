# /// pattern
# id = "destroy-groups"
# title = "Take the groups down after a clean end, and only then"
# topics = ["destroy-process-group", "process-group-setup"]
# follows = ["torch.distributed.destroy_process_group", "https://docs.pytorch.org/docs/stable/distributed.html#shutdown"]
# departs = ""
# form = "c10d"
# test = "test_init_forms.py::test_groups_are_destroyed_after_a_clean_end_only"
# processes = 2
# [run]
# '"nccl"' = '"gloo"'
# ///
import torch.distributed as dist


def main(train):
    dist.init_process_group("nccl")
    # Not in a finally: while an exception is on its way, other ranks are still inside a collective that this rank will
    # never enter. Taking the group down waits for them or breaks them. Let the process die: its launcher ends the rest,
    # and the first traceback is the one that says what happened.
    train()
    # Every rank arrives here, so the communicators go down everywhere, in the same order. Left to the garbage
    # collector at exit, the order differs from rank to rank, and with several groups that can hang.
    # Without an argument: the default group and every group made with new_group.
    dist.destroy_process_group()
