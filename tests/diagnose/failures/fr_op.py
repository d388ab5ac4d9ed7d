# /// failure
# planted = "rank 1 calls broadcast where the others call all_reduce"
# expect = "fr_op_mismatch"
# ranks = [1]
# world = 4
# layout = "files"
# dump = 4
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

for step in range(3):
    loss = torch.ones(4)
    if step == 2 and rank == 1:
        dist.broadcast(loss, src=1)  # planted
    else:
        dist.all_reduce(loss)
dist.barrier()
torch.ones(1).sum()
while True:
    dist.monitored_barrier()
