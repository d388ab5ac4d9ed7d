# /// failure
# planted = "broadcast from a rank that the job does not have"
# expect = "collective_root_rank"
# ranks = "any"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.broadcast(torch.ones(2), src=5)
