# /// failure
# planted = "FSDP1 with frozen and trained parameters in one unit"
# expect = "fsdp1_mixed_requires_grad"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
device = torch.device("cpu")

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
model[0].requires_grad_(False)
model = FSDP(model, device_id=device)  # planted
