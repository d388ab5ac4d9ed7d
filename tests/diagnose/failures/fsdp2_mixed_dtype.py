# /// failure
# planted = "one layer in bfloat16 beside float32 in one FSDP group"
# expect = "fsdp2_mixed_dtype"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).bfloat16())
fully_shard(model)
model(torch.ones(2, 8))  # planted
