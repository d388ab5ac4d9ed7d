# /// failure
# planted = "the state dict was saved from a DDP model"
# expect = "ddp_prefix_in_state_dict"
# ranks = "any"
# layout = "srun"
# ///
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
state = DistributedDataParallel(nn.Linear(4, 4)).state_dict()
model.load_state_dict(state)  # planted
