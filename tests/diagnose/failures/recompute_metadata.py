# /// failure
# planted = "the recomputed forward works on fewer rows"
# expect = "ac_nonreentrant_metadata_check"
# ranks = "any"
# layout = "folder"
# ///
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

calls = 0


def block(batch):
    global calls
    calls += 1
    return (batch if calls == 1 else batch[:1]).exp()


dist.init_process_group("gloo")
checkpoint(block, torch.ones(2, 4, requires_grad=True), use_reentrant=False).sum().backward()  # planted
