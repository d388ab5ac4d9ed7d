# /// pattern
# id = "fsdp2-accumulate-reduced"
# title = "Gradient accumulation that reduces every micro-batch, with the least memory"
# topics = ["gradient-accumulation"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_is_last_backward"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_accumulate_reduced"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Several micro-batches per step; every backward reduces, and the sharded gradients add up. Nothing has to be set."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule


def train_step(
    model: FSDPModule,  # what fully_shard made of the model
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    micro_batches: Sequence[Any],  # as many on every rank
) -> torch.Tensor:
    losses = []
    for index, batch in enumerate(micro_batches):
        # Without it every backward waits for its last reductions. With it they may run on under the next forward, and
        # are waited for at the end of the last one. Correctness does not depend on it, except that the last must be
        # True before the gradients are read.
        model.set_is_last_backward(index == len(micro_batches) - 1)
        loss = loss_fn(model, batch) / len(micro_batches)
        loss.backward()  # adds to the sharded gradients: memory as without accumulation
        losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack(losses).sum()
