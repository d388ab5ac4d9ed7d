# /// failure
# planted = "rank 1 ends its process with status 3 and no traceback"
# expect = "rank_exited_nonzero"
# ranks = [1]
# world = 3
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(4)
    if step == 2 and rank == 1:
        os._exit(3)
    dist.all_reduce(loss)
