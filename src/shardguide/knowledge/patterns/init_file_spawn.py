# /// pattern
# id = "init-file-spawn"
# title = "Shared-file initialisation with torch.multiprocessing.spawn"
# topics = ["init-file", "process-group-setup"]
# follows = ["torch.distributed.init_process_group", "https://docs.pytorch.org/docs/stable/distributed.html#shared-file-system-initialization"]
# departs = "The file lies in a new folder for every start, and the process that made the folder deletes it."
# form = "c10d"
# test = "test_init_forms.py::test_file_with_spawn_leaves_nothing_behind"
# processes = 2
# [run]
# 'torch.cuda.set_device(rank)' = 'torch.set_num_threads(1)'
# '"nccl"' = '"gloo"'
# ///
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world_size, path, train):
    torch.cuda.set_device(rank)
    # file:// and an absolute path make three slashes. The folder exists, the file does not yet.
    # The file hands out no ranks: each process says which one it is, and of how many.
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=world_size)
    train(rank, world_size)
    dist.destroy_process_group()


def launch(train, world_size, shared_folder=None):
    """Run ``train(rank, world_size)`` in ``world_size`` processes; several hosts need a folder that all of them see."""
    # A new folder each time: a file of an earlier run makes ranks wait for, or connect to, processes that are gone.
    # The file stays after a crash, and sometimes after a clean end. Here it goes with the folder, whatever happened.
    with tempfile.TemporaryDirectory(dir=shared_folder) as folder:
        path = Path(folder).resolve() / "store"
        mp.spawn(worker, args=(world_size, path, train), nprocs=world_size)
