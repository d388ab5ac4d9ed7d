# /// failure
# planted = "a child that belongs to the group of the root is called by itself"
# expect = "fsdp2_forward_hook_bypassed"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 8))
fully_shard(model)
hidden = model[0](torch.zeros(2, 3, dtype=torch.long))  # planted
