# /// pattern
# id = "init-file-torchrun"
# title = "Shared-file initialisation under torchrun"
# topics = ["init-file", "torchrun"]
# follows = ["torch.distributed.init_process_group", "https://docs.pytorch.org/docs/stable/elastic/run.html"]
# departs = "The documentation starts file:// processes by hand; under torchrun rank and world size are in the environment."
# form = "c10d"
# test = "test_init_forms.py::test_torchrun_gives_both_forms_their_ranks"
# processes = 2
# [run]
# 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))' = 'torch.set_num_threads(1)'
# '"nccl"' = '"gloo"'
# ///
# Start with: torchrun --rdzv-id=$JOB_ID ... train.py   (or --standalone, which makes an id of its own)
import os
from pathlib import Path

import torch
import torch.distributed as dist


def start(folder):
    """``folder``: exists, and every process of the job sees it (a local disk for one host, NFS for several)."""
    # One file per job and per attempt. Without --rdzv-id the id is "none" for every job, and the second would find
    # the file of the first; after a restart by torchrun the first attempt's file is as stale.
    job, attempt = os.environ["TORCHELASTIC_RUN_ID"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    assert job != "none", "start torchrun with --rdzv-id=..., a new one for each job"
    path = Path(folder).resolve() / f"store-{job}-{attempt}"
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        "nccl",
        init_method=f"file://{path}",
        # file:// does not look into the environment: what torchrun set there is passed on by hand.
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    return path  # mostly gone after a clean end; when it stays, as after a crash, it is yours to delete
