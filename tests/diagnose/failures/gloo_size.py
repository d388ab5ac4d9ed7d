# /// failure
# planted = "rank 1 reduces a larger tensor than the others"
# expect = "gloo_size_mismatch"
# ranks = "any"
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    loss = torch.ones(6000 if step == 2 and rank == 1 else 4)
    dist.all_reduce(loss)
