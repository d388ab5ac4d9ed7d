# /// failure
# planted = "rank 2 has one batch less, FSDP2"
# expect = "rank_ended_early"
# ranks = [2]
# world = 4
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
model = fully_shard(nn.Linear(8, 8))
for batch in [torch.ones(2, 8)] * (2 if rank == 2 else 3):
    model(batch).sum().backward()
