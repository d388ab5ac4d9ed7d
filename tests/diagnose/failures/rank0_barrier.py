# /// failure
# planted = "a barrier under if rank == 0"
# expect = "rank0_only_collective"
# ranks = [0]
# world = 4
# layout = "files"
# ///
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
if dist.get_rank() == 0:
    print("saving")
    dist.barrier()  # planted
print("done")
