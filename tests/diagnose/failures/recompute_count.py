# /// failure
# planted = "the recomputed forward takes another branch"
# expect = "ac_different_number"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

calls = 0


def block(batch):
    global calls
    calls += 1
    return (batch * batch).exp() if calls == 1 else batch.exp()


dist.init_process_group("gloo")
checkpoint(block, torch.ones(2, 4, requires_grad=True), use_reentrant=False).sum().backward()  # planted
