# /// pattern
# id = "init-env-spawn"
# title = "Environment initialisation with torch.multiprocessing.spawn"
# topics = ["init-env", "process-group-setup"]
# follows = ["torch.distributed.init_process_group", "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"]
# departs = "The tutorial fixes port 12355; here the kernel chooses a free one, so that two jobs on one host do not meet."
# form = "c10d"
# test = "test_init_forms.py::test_spawn_starts_real_processes"
# processes = 2
# own = ["bind", "getsockname"]
# [run]
# 'torch.cuda.set_device(rank)' = 'torch.set_num_threads(1)'
# '"nccl"' = '"gloo"'
# ///
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size, port, train):
    # spawn passes the rank as first argument and sets no environment: what torchrun would have set is set here.
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # one host only; several hosts need torchrun or a scheduler
    os.environ["MASTER_PORT"] = str(port)
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(world_size)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    train(rank, world_size)
    dist.destroy_process_group()


def launch(train, world_size):
    """Run ``train(rank, world_size)`` in ``world_size`` processes; raises what the first failing one raised."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # chosen once, here: all processes must be told the same port
        port = probe.getsockname()[1]
    # train must be a function of an importable module: spawn sends its name to the new interpreters.
    mp.spawn(worker, args=(world_size, port, train), nprocs=world_size)
