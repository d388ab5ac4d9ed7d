# /// failure
# planted = "rank 1 gathers a tensor of another size than its places have"
# expect = "collective_tensors_differ"
# ranks = [1]
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_gather([torch.zeros(3) for _ in range(2)], torch.ones(4 if rank == 1 else 3))
