# /// failure
# planted = "a sharded model is copied for an average of its weights"
# expect = "fsdp2_deepcopy"
# ranks = "any"
# ///
import copy

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = fully_shard(nn.Linear(8, 8))
average = copy.deepcopy(model)  # planted
