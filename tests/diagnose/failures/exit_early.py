# /// failure
# planted = "rank 2 leaves the loop early and ends well, the others wait for it"
# expect = "rank_ended_early"
# ranks = [2]
# world = 4
# ///
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(6):
    loss = torch.ones(4)
    if step == 4 and rank == 2:
        sys.exit(0)
    dist.all_reduce(loss)
