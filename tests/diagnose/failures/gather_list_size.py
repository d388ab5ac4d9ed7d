# /// failure
# planted = "the list for all_gather has too few tensors"
# expect = "gather_list_length"
# ranks = "any"
# world = 3
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
values = [torch.zeros(2) for _ in range(2)]
dist.all_gather(values, torch.ones(2))  # planted
