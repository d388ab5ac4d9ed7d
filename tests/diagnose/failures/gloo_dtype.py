# /// failure
# planted = "rank 0 broadcasts float64, the others expect float32"
# expect = "gloo_size_mismatch"
# ranks = "any"
# layout = "files"
# world = 3
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(64, dtype=torch.float64 if rank == 0 else torch.float32)
dist.broadcast(value, src=0)
print(value.sum())
