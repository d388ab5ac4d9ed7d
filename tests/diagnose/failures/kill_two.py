# /// failure
# planted = "ranks 1 and 2 of 4 are killed at the same step"
# expect = "killed_from_outside"
# ranks = [1, 2]
# world = 4
# layout = "folder"
# ///
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(4))
if rank in (1, 2):
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1)
dist.all_reduce(torch.ones(4))
