# /// failure
# planted = "a collective before init_process_group"
# expect = "init_missing"
# ranks = "any"
# ///
import torch
import torch.distributed as dist

loss = torch.ones(4)
dist.all_reduce(loss)  # planted
