# /// failure
# planted = "the recomputed forward works on another dtype"
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
    return (batch.bfloat16() if calls == 1 else batch).exp().float()


dist.init_process_group("gloo")
checkpoint(block, torch.ones(2, 4, requires_grad=True), use_reentrant=False).sum().backward()  # planted
