# /// failure
# planted = "rank 2 calls broadcast where the others call all_reduce, with DETAIL"
# expect = "collective_mismatch_op"
# ranks = [2]
# world = 3
# env = { TORCH_DISTRIBUTED_DEBUG = "DETAIL" }
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    loss = torch.ones(4)
    if step == 1 and rank == 2:
        dist.broadcast(loss, src=0)  # planted
    else:
        dist.all_reduce(loss)
