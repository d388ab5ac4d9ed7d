# /// failure
# planted = "rank 1 does not come to monitored_barrier"
# expect = "monitored_barrier_missing"
# ranks = [1]
# world = 4
# ///
import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(20)
dist.monitored_barrier(timeout=timedelta(seconds=3))  # planted
