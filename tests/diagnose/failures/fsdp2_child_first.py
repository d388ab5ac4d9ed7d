# /// failure
# planted = "a sharded child runs before the root"
# expect = "fsdp2_root_not_first"
# ranks = "any"
# layout = "folder"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
model[0](torch.ones(2, 8))
model(torch.ones(2, 8))  # planted
