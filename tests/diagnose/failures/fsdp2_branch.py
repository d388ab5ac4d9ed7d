# /// failure
# planted = "rank 1 skips a block whose parameters are gathered by the others"
# expect = "gloo_size_mismatch"
# ranks = "any"
# layout = "files"
# world = 3
# limit = 40
# ///
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.text, self.image = nn.Linear(8, 8), nn.Linear(8, 16)

    def forward(self, batch, image):
        hidden = self.text(batch)
        return hidden.sum() + (self.image(batch).sum() if image else 0)  # planted


dist.init_process_group("gloo", timeout=timedelta(seconds=6))
model = Model()
fully_shard(model.text)
fully_shard(model.image)
fully_shard(model)
for _ in range(3):
    model(torch.ones(2, 8), dist.get_rank() != 1).backward()
