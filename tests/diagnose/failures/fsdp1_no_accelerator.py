# /// failure
# planted = "FSDP1 without device_id on a machine without accelerator"
# expect = "fsdp1_cpu_only"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
device = torch.device("cpu")

model = FSDP(nn.Linear(4, 4))  # planted
