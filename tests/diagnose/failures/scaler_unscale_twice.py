# /// failure
# planted = "unscale_ is called twice in a step"
# expect = "scaler_order"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
scaler.scale(model(torch.ones(2, 4)).sum()).backward()
scaler.unscale_(optimizer)
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.unscale_(optimizer)  # planted
