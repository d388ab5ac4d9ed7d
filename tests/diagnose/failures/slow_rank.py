# /// failure
# planted = "rank 3 is busy for longer than the timeout of the group"
# expect = "collective_timeout_waiting"
# ranks = [3]
# world = 4
# layout = "files"
# limit = 30
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=4))
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(4)
    if step == 2 and rank == 3:
        time.sleep(15)
    dist.all_reduce(loss)  # planted
    print(f"step {step}")
