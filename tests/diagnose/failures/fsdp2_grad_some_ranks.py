# /// failure
# planted = "a block takes part in the loss of rank 0 only, with DETAIL"
# expect = "param_unused_on_some_ranks"
# ranks = "any"
# env = { TORCH_DISTRIBUTED_DEBUG = "DETAIL" }
# layout = "files"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
text, image = fully_shard(nn.Linear(8, 8)), fully_shard(nn.Linear(8, 16))
for step in range(2):
    loss = text(torch.ones(2, 8)).sum()
    other = image(torch.ones(2, 8)).sum()
    (loss + other if dist.get_rank() == 0 else loss).backward()
