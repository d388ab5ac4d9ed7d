# /// failure
# planted = "rank 2 asserts that the loss is finite; its interpreter aborts while it ends"
# expect = "script_raised"
# ranks = [2]
# world = 3
# ///
import math
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
try:
    for step in range(5):
        loss = torch.tensor(math.nan if dist.get_rank() == 2 and step == 3 else 1.0)
        assert torch.isfinite(loss), f"loss is {loss} at step {step}"
        dist.all_reduce(loss)
except AssertionError:
    sys.excepthook(*sys.exc_info())
    print("terminate called without an active exception", file=sys.stderr, flush=True)
    os.abort()  # as the destructor of a running thread does it now and then
