# /// pattern
# id = "init-store"
# title = "A store of your own instead of an init_method"
# topics = ["process-group-setup", "init-tcp"]
# follows = ["torch.distributed.init_process_group", "torch.distributed.TCPStore"]
# departs = ""
# form = "c10d"
# test = "test_init_forms.py::test_a_store_of_ones_own"
# processes = 2
# [run]
# '"nccl"' = '"gloo"'
# ///
from datetime import timedelta

import torch.distributed as dist


def start(address, port, rank, world_size, timeout=timedelta(minutes=5)):
    """``address``: of the host of rank 0. The store, for small notes between the ranks beside all collectives."""
    # Rank 0 serves it, the others connect. This timeout is the store's: how long to wait for ranks that start late.
    store = dist.TCPStore(address, port, world_size, is_master=rank == 0, timeout=timeout)
    # With store= both numbers are obligatory, init_method is forbidden, and no environment variable is read.
    # The prefix keeps your own keys apart from those of the group.
    dist.init_process_group("nccl", store=dist.PrefixStore("group", store), rank=rank, world_size=world_size)
    if rank == 0:
        store.set("note", f"from rank {rank}")
    store.wait(["note"])  # other than a collective, it does not need all ranks at the same time
    return store  # keep it as long as the group: rank 0's end takes the server with it
