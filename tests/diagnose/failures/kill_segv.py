# /// failure
# planted = "rank 0 reads through a null pointer in native code"
# expect = "rank_segfault"
# ranks = [0]
# ///
import ctypes

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.ones(4)
    if step == 2 and rank == 0:
        ctypes.string_at(0)
    dist.all_reduce(loss)
