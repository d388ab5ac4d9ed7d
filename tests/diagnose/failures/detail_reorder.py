# /// failure
# planted = "rank 0 and rank 1 issue two collectives in different orders, with DETAIL"
# expect = "collective_mismatch_op"
# ranks = "any"
# env = { TORCH_DISTRIBUTED_DEBUG = "DETAIL" }
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
loss, flag = torch.ones(4), torch.zeros(4)
if dist.get_rank() == 0:
    dist.all_reduce(loss)
    dist.broadcast(flag, src=0)
else:
    dist.broadcast(flag, src=0)
    dist.all_reduce(loss)
