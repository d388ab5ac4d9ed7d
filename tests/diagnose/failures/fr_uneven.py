# /// failure
# planted = "rank 1 has one batch less under DDP and waits at the barrier"
# expect = "fr_op_mismatch"
# ranks = [1]
# world = 4
# layout = "files"
# dump = 5
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

model = DistributedDataParallel(nn.Linear(256, 256))
for _ in range(3 if rank == 1 else 4):
    model(torch.ones(2, 256)).sum().backward()
dist.barrier()  # planted
dist.barrier()
