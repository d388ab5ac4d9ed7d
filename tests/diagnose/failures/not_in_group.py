# /// failure
# planted = "rank 2 uses a group it does not belong to"
# expect = "group_not_member"
# ranks = "any"
# world = 3
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
half = dist.new_group([0, 1])
gathered = [torch.zeros(1) for _ in range(dist.get_world_size(half))]
dist.broadcast(torch.ones(1), src=2, group=half)  # planted
