# /// failure
# planted = "new_group is called on rank 0 only"
# expect = "new_group_not_by_all"
# ranks = [0]
# world = 3
# layout = "files"
# limit = 60
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=4))
if dist.get_rank() == 0:
    half = dist.new_group([0, 1], timeout=timedelta(seconds=4))  # planted
    dist.all_reduce(torch.ones(1), group=half)
else:
    print("waiting")
    time.sleep(8)
