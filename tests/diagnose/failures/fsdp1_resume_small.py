# /// failure
# planted = "resume of FSDP1 with a parameter whose first dimension is smaller than the number of ranks"
# expect = "fsdp1_dcp_resume_small_parameter"
# ranks = "any"
# world = 4
# ///
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"


def build():
    model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), device_id=torch.device("cpu"), use_orig_params=True)
    return model, torch.optim.AdamW(model.parameters())


model, optimizer = build()
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
state, moments = get_state_dict(model, optimizer)
dcp.save({"model": state, "optimizer": moments}, checkpoint_id=path)
model, optimizer = build()
state, moments = get_state_dict(model, optimizer)
dcp.load({"model": state, "optimizer": moments}, checkpoint_id=path)  # planted
