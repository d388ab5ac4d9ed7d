# /// failure
# planted = "a barrier under if rank == 0 while the others wait for a message of rank 0"
# expect = "fr_only_some_ranks"
# ranks = [0]
# world = 5
# layout = "files"
# dump = 4
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

dist.all_reduce(torch.ones(2))
if rank == 0:
    dist.barrier()  # planted
time.sleep(60)
