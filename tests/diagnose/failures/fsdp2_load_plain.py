# /// failure
# planted = "a plain state dict is loaded into a sharded model"
# expect = "plain_tensors_into_dtensor_params"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")

model = nn.Linear(8, 8)
state = {name: value.clone() for name, value in model.state_dict().items()}
fully_shard(model)
model.load_state_dict(state)  # planted
