# /// failure
# planted = "rank 1 has fewer batches, plain DDP without Join, and waits in the barrier at the end of the epoch"
# expect = "uneven_batches"
# ranks = [1]
# world = 3
# layout = "files"
# ///
import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(8, 8))
batches = [torch.ones(2, 8)] * (3 if rank == 1 else 5)
for batch in batches:
    model(batch).sum().backward()
dist.barrier()
