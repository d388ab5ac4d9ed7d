# /// failure
# planted = "parameters are still on the meta device at the first forward"
# expect = "fsdp2_param_left_on_meta"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

with torch.device("meta"):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
model(torch.ones(2, 8))  # planted
