# /// pattern
# id = "fsdp1-evaluate"
# title = "FSDP1: evaluate on all ranks, and gather the parameters where a method needs them"
# topics = ["evaluation", "forward-methods", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params", "https://docs.pytorch.org/tutorials/intermediate/FSDP_advanced_tutorial.html"]
# departs = "Sums and counts are added up over the ranks, so that a last, smaller batch has its right weight."
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_evaluate"
# processes = 2
# not_run = ""
# own = ["generate"]
# ///
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@torch.no_grad()
def evaluate(model, batches, loss_sum, device):
    """``batches`` must be equally many on every rank: each forward is a collective. ``loss_sum`` adds up, it does not average."""
    model.eval()
    totals = torch.zeros(2, device=device)
    for inputs, targets in batches:
        totals[0] += loss_sum(model(inputs), targets)
        totals[1] += targets.numel()
    dist.all_reduce(totals)
    model.train()
    return totals[0] / totals[1]


@torch.no_grad()
def generate(model, inputs):
    # Only forward gathers parameters. Any other method of the model finds shards, unless they are summoned before: all at
    # once, on every rank. writeback=False: nothing was changed, so nothing has to be written back to the shards.
    with FSDP.summon_full_params(model, writeback=False):
        return model.module.generate(inputs)
