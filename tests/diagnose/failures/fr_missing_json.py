# /// failure
# planted = "rank 0 is late for the second all_gather, dumps in JSON"
# expect = "fr_rank_missing"
# ranks = [0]
# world = 3
# layout = "files"
# dump = 4
# json = true
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    parts = [torch.zeros(4) for _ in range(3)]
    if step == 1 and rank == 0:
        time.sleep(60)
    dist.all_gather(parts, torch.ones(4))
