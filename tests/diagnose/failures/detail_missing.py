# /// failure
# planted = "rank 2 never comes to the collective, with DETAIL"
# expect = "monitored_barrier_missing"
# ranks = [2]
# world = 3
# env = { TORCH_DISTRIBUTED_DEBUG = "DETAIL" }
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=4))
if dist.get_rank() == 2:
    time.sleep(30)
dist.all_reduce(torch.ones(4))
