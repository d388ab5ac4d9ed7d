# /// failure
# planted = "embedding and head share a weight and lie in two FSDP groups"
# expect = "fsdp2_tied_params_two_groups"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16, bias=False))
model[1].weight = model[0].weight
fully_shard(model[0])
fully_shard(model)
model(torch.zeros(2, 3, dtype=torch.long))  # planted
