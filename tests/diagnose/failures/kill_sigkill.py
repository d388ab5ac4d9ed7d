# /// failure
# planted = "rank 1 is killed with SIGKILL in its third step"
# expect = "killed_from_outside"
# ranks = [1]
# world = 4
# ///
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(6):
    loss = torch.ones(4)
    if step == 2 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(loss)
    if rank == 0:
        print(f"step {step} loss {loss.mean().item():.3f}")
