# /// failure
# planted = "rank 3 reduces another dtype, with DETAIL"
# expect = "collective_mismatch_dtype"
# ranks = [3]
# world = 4
# env = { TORCH_DISTRIBUTED_DEBUG = "DETAIL" }
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.ones(4, dtype=torch.float64 if rank == 3 else torch.float32)
dist.all_reduce(loss)  # planted
