# /// failure
# planted = "rank 3 has one batch less under FSDP2 and waits for the others elsewhere"
# expect = "fr_rank_missing"
# ranks = [3]
# world = 4
# layout = "files"
# dump = 6
# ///
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = fully_shard(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
for _ in range(2 if rank == 3 else 3):
    model(torch.ones(2, 8)).sum().backward()
time.sleep(60)
