# /// failure
# planted = "a folder without a checkpoint is loaded"
# expect = "dcp_no_metadata"
# ranks = "any"
# ///
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"

dcp.load({"model": nn.Linear(4, 4).state_dict()}, checkpoint_id=path + "/step-1000")  # planted
