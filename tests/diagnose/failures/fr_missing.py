# /// failure
# planted = "rank 2 does not come to the fifth all_reduce"
# expect = "fr_rank_missing"
# ranks = [2]
# world = 4
# layout = "files"
# dump = 4
# ///
import time

import torch
import torch.distributed as dist


def train(rank):
    for step in range(6):
        loss = torch.ones(4)
        if step == 4 and rank == 2:
            time.sleep(60)
        dist.all_reduce(loss)  # planted


dist.init_process_group("gloo")
train(dist.get_rank())
