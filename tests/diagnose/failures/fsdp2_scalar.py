# /// failure
# planted = "a parameter without dimensions"
# expect = "fsdp_scalar_param"
# ranks = "any"
# layout = "folder"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, batch):
        return batch * self.scale


dist.init_process_group("gloo")
model = fully_shard(Scaled())  # planted
