# /// failure
# planted = "everything is frozen before DDP"
# expect = "ddp_no_trainable_parameters"
# ranks = "any"
# ///
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = nn.Linear(4, 4).requires_grad_(False)
model = DistributedDataParallel(model)  # planted
