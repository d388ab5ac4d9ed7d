# /// failure
# planted = "a collective before init_process_group"
# expect = "group_not_initialised"
# ranks = "any"
# ///
import torch
import torch.distributed as dist

loss = torch.ones(4)
dist.all_reduce(loss)  # planted
