# /// failure
# planted = "rank 0 waits for a message that rank 1 never sends"
# expect = "collective_timeout_waiting"
# ranks = [1]
# ///
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
activations = torch.zeros(4)
if dist.get_rank() == 0:
    dist.recv(activations, src=1)  # planted
else:
    time.sleep(12)
