# /// failure
# planted = "rank 3 is killed with SIGKILL in every attempt, torchrun restarts once"
# expect = "killed_from_outside"
# ranks = [3]
# world = 4
# options = ["--max-restarts", "1"]
# ///
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(4)
    if step == 1 and rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    dist.all_reduce(loss)
