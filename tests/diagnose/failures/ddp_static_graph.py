# /// failure
# planted = "static_graph=True and a layer that is used in some steps"
# expect = "ddp_static_graph_changed"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch, both):
        batch = self.one(batch)
        return self.two(batch) if both else batch


dist.init_process_group("gloo")
model = DistributedDataParallel(Model(), static_graph=True)
for step in range(3):
    model(torch.ones(2, 4), step < 1).sum().backward()  # planted
