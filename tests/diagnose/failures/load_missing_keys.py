# /// failure
# planted = "the state dict was saved from a compiled model"
# expect = "compile_prefix_in_state_dict"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
state = torch.compile(model).state_dict()
model.load_state_dict(state)  # planted
