# /// failure
# planted = "the model has a layer more than the checkpoint"
# expect = "dcp_missing_key"
# ranks = "any"
# ///
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"

dcp.save({"model": nn.Sequential(nn.Linear(4, 4)).state_dict()}, checkpoint_id=path)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
dcp.load({"model": model.state_dict()}, checkpoint_id=path)  # planted
