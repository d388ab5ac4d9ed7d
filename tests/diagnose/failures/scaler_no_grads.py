# /// failure
# planted = "the scaler steps an optimizer without gradients on rank 1"
# expect = "sharded_scaler_no_local_grads"
# ranks = [1]
# ///
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu")
if dist.get_rank() == 0:
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
else:
    scaler.scale(torch.ones(()))
scaler.step(optimizer)  # planted
dist.barrier()
