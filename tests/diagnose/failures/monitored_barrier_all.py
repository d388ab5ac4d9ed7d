# /// failure
# planted = "ranks 1 and 3 do not come to monitored_barrier(wait_all_ranks=True)"
# expect = "monitored_barrier_missing"
# ranks = [1, 3]
# world = 4
# ///
import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() in (1, 3):
    time.sleep(20)
dist.monitored_barrier(timeout=timedelta(seconds=3), wait_all_ranks=True)
