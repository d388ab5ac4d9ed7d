# /// failure
# planted = "rank 0 reduces float64"
# expect = "fr_dtype_mismatch"
# ranks = [0]
# world = 4
# layout = "files"
# dump = 4
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(4, dtype=torch.float64 if step == 1 and rank == 0 else torch.float32)
    work = dist.all_reduce(loss, async_op=True)
time.sleep(60)
