# /// failure
# planted = "the data file of rank 1 was not copied"
# expect = "dcp_data_file_missing"
# ranks = "any"
# ///
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
path = os.environ["WORK"] + "/checkpoint"


model = fully_shard(nn.Linear(8, 8))
dcp.save({"model": model.state_dict()}, checkpoint_id=path)
if dist.get_rank() == 0:
    Path(path, "__1_0.distcp").unlink()
dist.barrier()
dcp.load({"model": model.state_dict()}, checkpoint_id=path)  # planted
