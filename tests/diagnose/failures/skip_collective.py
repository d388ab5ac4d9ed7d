# /// failure
# planted = "rank 1 skips one all_reduce and ends one collective before the others"
# expect = "rank_ended_early"
# ranks = [1]
# world = 4
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    loss = torch.ones(4)
    if not (step == 2 and rank == 1):
        dist.all_reduce(loss)  # planted
print("done")
