# /// failure
# planted = "rank 0 has one batch less under Join(throw_on_early_termination=True)"
# expect = "join_throw_early"
# ranks = [0]
# world = 3
# layout = "files"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(8, 8))
batches = [torch.ones(2, 8)] * (3 if rank == 0 else 4)
with Join([model], throw_on_early_termination=True):
    for batch in batches:
        model(batch).sum().backward()
