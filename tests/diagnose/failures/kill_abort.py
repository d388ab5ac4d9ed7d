# /// failure
# planted = "rank 2 aborts in native code"
# expect = "crashed_sigabrt"
# ranks = [2]
# world = 4
# layout = "folder"
# ///
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(6):
    loss = torch.ones(4)
    if step == 3 and rank == 2:
        os.abort()
    dist.all_reduce(loss)
    print(f"step {step} loss {loss.mean().item():.3f}")
dist.destroy_process_group()
