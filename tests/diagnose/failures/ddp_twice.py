# /// failure
# planted = "two reentrant checkpoints of one layer under DDP"
# expect = "ddp_reentrant_checkpoint"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, batch):
        batch = checkpoint(self.layer, batch, use_reentrant=True)
        return checkpoint(self.layer, batch, use_reentrant=True)


dist.init_process_group("gloo")
model = DistributedDataParallel(Model(), find_unused_parameters=True)
model(torch.ones(2, 4, requires_grad=True)).sum().backward()  # planted
