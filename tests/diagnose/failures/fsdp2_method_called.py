# /// failure
# planted = "a method that is not forward is called on a sharded model"
# expect = "fsdp2_forward_hook_bypassed"
# ranks = "any"
# layout = "srun"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch):
        return self.layer(batch)

    def encode(self, batch):
        return torch.nn.functional.linear(batch, self.layer.weight)  # planted


dist.init_process_group("gloo")
model = fully_shard(Encoder())
model.encode(torch.ones(2, 8))
