# /// failure
# planted = "async_save to a place where a checkpoint is, seen when the result is asked for"
# expect = "dcp_exists"
# ranks = "any"
# world = 3
# ///
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"

state = {"model": nn.Linear(4, 4).state_dict()}
dcp.save(state, checkpoint_id=path)
saving = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(path, overwrite=False))
saving.result()  # planted
