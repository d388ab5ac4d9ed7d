# /// failure
# planted = "fully_shard on a ModuleList"
# expect = "fsdp2_container"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
fully_shard(blocks)  # planted
