# /// failure
# planted = "backward is called twice on one graph"
# expect = "backward_twice"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()))
loss = model(torch.ones(2, 4)).sum()
loss.backward()
loss.backward()  # planted
