# /// failure
# planted = "rank 0 alone reduces a metric, in torchrun folders"
# expect = "rank0_only_collective"
# ranks = [0]
# world = 3
# layout = "folder"
# ///
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
for step in range(3):
    loss = torch.ones(4)
    dist.all_reduce(loss)
if dist.get_rank() == 0:
    total = loss.sum()
    dist.all_reduce(total)  # planted
    print("total", total)
