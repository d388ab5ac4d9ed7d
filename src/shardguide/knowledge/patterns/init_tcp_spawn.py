# /// pattern
# id = "init-tcp-spawn"
# title = "TCP initialisation, ranks given by hand"
# topics = ["init-tcp", "process-group-setup"]
# follows = ["torch.distributed.init_process_group", "https://docs.pytorch.org/docs/stable/distributed.html#tcp-initialization"]
# departs = ""
# form = "c10d"
# test = "test_init_forms.py::test_tcp_with_ranks_by_hand"
# processes = 2
# [run]
# 'torch.cuda.set_device(rank)' = 'torch.set_num_threads(1)'
# '"nccl"' = '"gloo"'
# ///
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size, address, train):
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl",
        # Address of the host on which rank 0 runs, and a port that is free there: rank 0 opens it, the others connect.
        init_method=f"tcp://{address}",
        # tcp:// hands out no ranks: each process says which one it is, and of how many.
        rank=rank,
        world_size=world_size,
    )
    train(rank, world_size)
    dist.destroy_process_group()


def launch(train, world_size, address="127.0.0.1:29511"):
    """Run ``train(rank, world_size)`` in ``world_size`` processes of this host.

    Not under torchrun: there rank 0 would wait for a store that nobody serves at this address. Use env:// there.
    """
    mp.spawn(worker, args=(world_size, address, train), nprocs=world_size)
