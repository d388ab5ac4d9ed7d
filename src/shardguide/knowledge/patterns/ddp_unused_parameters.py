# /// pattern
# id = "ddp-unused-parameters"
# title = "Parameters that a step does not use, under DDP"
# topics = ["ddp-unused-parameters"]
# follows = ["torch.nn.parallel.DistributedDataParallel"]
# departs = ""
# architecture = "multi-tower"
# form = "ddp"
# test = "test_ddp.py::test_heads_used_in_turn_equal_one_process"
# processes = 2
# [run]
# 'device_ids=[device]' = 'device_ids=None'
# ///
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(torch.nn.Module):
    """A body with two heads of which a batch uses one; different ranks may use different ones at the same time."""

    def __init__(self, body, first, second):
        super().__init__()
        self.body = body
        self.heads = torch.nn.ModuleList([first, second])

    def forward(self, inputs, head):
        return self.heads[head](self.body(inputs))


def wrap(model, device):
    # Without it the reduction waits for gradients that never come, and the next forward raises "Expected to have
    # finished reduction in the prior iteration". With it DDP walks the graph in each forward to find what is unused:
    # it costs time in every step, so only where parameters really are left out.
    return DDP(model.to(device), device_ids=[device], find_unused_parameters=True)


# A parameter that one rank used and another did not gets the average over all ranks, zero counting for the others.
# If the unused parameters are always the same, static_graph=True is cheaper; if they are never used, freeze them with
# requires_grad_(False) before wrapping. Not together with checkpoint(use_reentrant=True): "marked as ready twice".
