# /// failure
# planted = "two groups of the same ranks are used in two orders"
# expect = "fr_group_order"
# ranks = "any"
# world = 2
# layout = "files"
# dump = 4
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

one, two = dist.new_group([0, 1]), dist.new_group([0, 1])
dist.all_reduce(torch.ones(2))
for group in (one, two) if rank == 0 else (two, one):
    dist.all_reduce(torch.ones(2), group=group)  # planted
