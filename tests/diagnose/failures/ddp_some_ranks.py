# /// failure
# planted = "rank 1 skips a layer, so that its gradients are never reduced"
# expect = "ddp_unused_parameters"
# ranks = [1]
# layout = "files"
# limit = 40
# ///
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.vision = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch, image):
        return self.text(batch) + (self.vision(batch) if image else 0)


dist.init_process_group("gloo", timeout=timedelta(seconds=5))
model = DistributedDataParallel(Model())
for _ in range(2):
    model(torch.ones(2, 4), dist.get_rank() == 0).sum().backward()  # planted
