# /// failure
# planted = "rank 1 issues a gather of sizes and an all_reduce in the other order"
# expect = "gloo_size_mismatch"
# ranks = "any"
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
sizes, loss = torch.ones(64, dtype=torch.int64), torch.ones(4)
if dist.get_rank() == 1:
    dist.all_reduce(loss)
    dist.all_reduce(sizes)
else:
    dist.all_reduce(sizes)
    dist.all_reduce(loss)
