# /// failure
# planted = "rank 0 works its output splits out from another size than its tensor has"
# expect = "collective_split_sizes"
# ranks = [0]
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
out = torch.zeros(6)
dist.all_to_all_single(out, torch.arange(6.0), [3, 3], [2, 3] if dist.get_rank() == 0 else [3, 3])
