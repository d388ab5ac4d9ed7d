# /// failure
# planted = "rank 1 reduces a tensor of another size, with DETAIL"
# expect = "collective_mismatch_shape"
# ranks = [1]
# world = 4
# env = { TORCH_DISTRIBUTED_DEBUG = "DETAIL" }
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    loss = torch.ones(6 if step == 2 and rank == 1 else 4)
    dist.all_reduce(loss)  # planted
