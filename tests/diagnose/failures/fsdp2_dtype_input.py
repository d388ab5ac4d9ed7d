# /// failure
# planted = "bfloat16 parameters and a float32 input without a mixed-precision policy"
# expect = "fsdp2_input_not_cast"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).bfloat16()
fully_shard(model)
model(torch.ones(2, 8))  # planted
