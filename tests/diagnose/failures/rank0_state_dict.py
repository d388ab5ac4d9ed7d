# /// failure
# planted = "rank 0 alone gathers the full state dict of a sharded model"
# expect = "rank0_only_state_dict"
# ranks = [0]
# layout = "files"
# limit = 30
# ///
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
model = fully_shard(nn.Linear(8, 8))
model(torch.ones(2, 8)).sum().backward()
if dist.get_rank() == 0:
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))  # planted
    torch.save(state, "model.pt")
dist.barrier()
