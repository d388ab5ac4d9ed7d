# /// failure
# planted = "two groups of the same ranks are used in two orders"
# expect = "fr_group_order"
# ranks = [1]
# world = 2
# layout = "files"
# dump = 4
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

one, two = dist.new_group([0, 1]), dist.new_group([0, 1])
for step in range(3):
    for group in (two, one) if step == 2 and rank == 1 else (one, two):
        dist.all_reduce(torch.ones(2), group=group)  # planted
