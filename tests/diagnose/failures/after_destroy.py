# /// failure
# planted = "a collective after destroy_process_group"
# expect = "group_not_initialised"
# ranks = "any"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
loss = torch.ones(4)
dist.all_reduce(loss)
dist.destroy_process_group()
dist.all_reduce(loss)  # planted
