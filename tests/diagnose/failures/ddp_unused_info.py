# /// failure
# planted = "a layer takes no part in the loss, with INFO naming it"
# expect = "ddp_unused_parameters"
# ranks = "any"
# env = { TORCH_DISTRIBUTED_DEBUG = "INFO" }
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.head = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch):
        return self.used(batch), self.head(batch)


dist.init_process_group("gloo")
model = DistributedDataParallel(Model())
for _ in range(2):
    model(torch.ones(2, 4))[0].sum().backward()
