# /// failure
# planted = "rank 1 of 2 is busy for longer than the timeout, under torchrun"
# expect = "collective_timeout_waiting"
# ranks = [1]
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(4)
    if step == 2 and rank == 1:
        time.sleep(30)
    dist.all_reduce(loss)  # planted
