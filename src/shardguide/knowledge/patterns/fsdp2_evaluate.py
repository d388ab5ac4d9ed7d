# /// pattern
# id = "fsdp2-evaluate"
# title = "Evaluation on all ranks, and the exact mean loss"
# topics = ["evaluation"]
# follows = ["torch.distributed.all_reduce", "https://docs.pytorch.org/tutorials/intermediate/FSDP1_tutorial.html"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_evaluate"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Evaluate a sharded model: every rank takes part, and the mean is over samples, not over ranks."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule


# no_grad, not inference_mode: what FSDP allocates in its first forward would be inference tensors, and the next training
# forward would fail on them ("Inplace update to inference tensor").
@torch.no_grad()
def evaluate(
    model: FSDPModule,
    batches: Iterable[Any],  # as many on every rank: each forward is a collective. What a sampler repeats counts twice
    loss_sum: Callable[[Any, Any], tuple[torch.Tensor, int]],  # the sum of the losses, and of how many
    device: torch.device,
) -> float:
    was_training = model.training
    model.eval()
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for batch in batches:
        loss, count = loss_sum(model, batch)
        total[0] += loss
        total[1] += count
    # A mean of the ranks' means would weigh a short last batch like a full one.
    dist.all_reduce(total)
    model.train(was_training)
    # A forward leaves the root's own parameters gathered for a backward that does not come. An optimizer step changes
    # the shards only, and the next forward would use the old copies; so free them.
    model.reshard()
    return (total[0] / total[1]).item()


# Never on rank 0 alone ("if rank == 0: evaluate(...)"): it would wait for the others in its first all-gather.
