# /// failure
# planted = "a checkpoint is there already and may not be overwritten"
# expect = "dcp_exists"
# ranks = "any"
# ///
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"

state = {"model": nn.Linear(4, 4).state_dict()}
for _ in range(2):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(path, overwrite=False))  # planted
