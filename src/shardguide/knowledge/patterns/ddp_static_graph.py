# /// pattern
# id = "ddp-static-graph"
# title = "A static graph under DDP: one block recomputed several times"
# topics = ["ddp-static-graph", "activation-checkpointing", "ddp-unused-parameters"]
# follows = ["torch.nn.parallel.DistributedDataParallel", "torch.utils.checkpoint.checkpoint"]
# departs = "The docstring asks _get_ddp_logging_data() for can_set_static_graph, a key that never appears; here the used parameters of several batches are compared before wrapping."
# architecture = "tied"
# form = "ddp"
# test = "test_ddp.py::test_static_graph_equals_one_process"
# processes = 2
# [run]
# 'device_ids=[device]' = 'device_ids=None'
# ///
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Looped(torch.nn.Module):
    """One block applied several times, and recomputed each time."""

    def __init__(self, block, times, use_reentrant):
        super().__init__()
        self.block, self.times, self.use_reentrant = block, times, use_reentrant

    def forward(self, inputs):
        for _ in range(self.times):
            inputs = checkpoint(self.block, inputs, use_reentrant=self.use_reentrant)
        return inputs


def used_parameters(model, batches, loss_of):
    """The sets of parameters that get a gradient, over some batches: more than one set means, not static."""
    seen = set()
    for batch in batches:  # before wrapping, on one process; necessary for a static graph, but no proof of one
        model.zero_grad()
        loss_of(model, batch).backward()
        seen.add(frozenset(name for name, parameter in model.named_parameters() if parameter.grad is not None))
    model.zero_grad()
    return seen


def wrap(model, device):
    # A promise: the same parameters are used, in the same way, in every iteration. The first one is recorded. In return
    # a checkpointed block may run several times with use_reentrant=True, and unused parameters cost no search.
    # With use_reentrant=False (the advice) a block may run several times without the promise too.
    return DDP(model.to(device), device_ids=[device], static_graph=True)
