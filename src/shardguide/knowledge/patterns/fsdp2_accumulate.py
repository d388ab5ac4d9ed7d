# /// pattern
# id = "fsdp2-accumulate"
# title = "Gradient accumulation without communication (FSDP2's no_sync)"
# topics = ["gradient-accumulation"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync", "torch.distributed.fsdp.FSDPModule.set_reshard_after_backward"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_accumulate"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Several micro-batches per step; gradients stay unsharded on the rank and are reduced once, with the last one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule


def train_step(
    model: FSDPModule,  # what fully_shard made of the model
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    micro_batches: Sequence[Any],  # as many on every rank
    keep_parameters: bool = False,
) -> torch.Tensor:
    losses = []
    for index, batch in enumerate(micro_batches):
        last = index == len(micro_batches) - 1
        # Set before the forward of the micro-batch. The price is memory: whole gradients, not shards, in reduce_dtype.
        model.set_requires_gradient_sync(last)
        if keep_parameters:
            # Also keeps the gathered parameters, so that the next forward has no all-gather: still more memory.
            model.set_reshard_after_backward(last)
        # FSDP averages over the ranks; the mean over micro-batches is this division.
        loss = loss_fn(model, batch) / len(micro_batches)
        loss.backward()
        losses.append(loss.detach())
    # Only now are the gradients complete: clipping and stepping come after the loop.
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack(losses).sum()
