# /// failure
# planted = "rank 1 has one batch less, plain DDP without Join"
# expect = "rank_ended_early"
# ranks = [1]
# world = 3
# layout = "files"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(8, 8))
batches = [torch.ones(2, 8)] * (3 if rank == 1 else 4)
for step, batch in enumerate(batches):
    model(batch).sum().backward()
    print(f"step {step}")
