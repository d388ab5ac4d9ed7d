# /// failure
# planted = "the vocabulary grew since the checkpoint"
# expect = "dcp_size_mismatch"
# ranks = "any"
# layout = "folder"
# ///
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"

dcp.save({"model": nn.Embedding(100, 4).state_dict()}, checkpoint_id=path)
dcp.load({"model": nn.Embedding(104, 4).state_dict()}, checkpoint_id=path)  # planted
