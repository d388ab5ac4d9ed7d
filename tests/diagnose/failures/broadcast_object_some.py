# /// failure
# planted = "broadcast_object_list is called on rank 0 only, the others go on to all_reduce"
# expect = "gloo_size_mismatch"
# ranks = "any"
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
settings = [{"lr": 0.1, "names": ["a", "b"]}]
if dist.get_rank() == 0:
    dist.broadcast_object_list(settings, src=0)
loss = torch.ones(1, dtype=torch.uint8)
dist.broadcast(loss, src=0)
