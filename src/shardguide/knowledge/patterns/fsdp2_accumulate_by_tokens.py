# /// pattern
# id = "fsdp2-accumulate-by-tokens"
# title = "The mean over the tokens of all ranks and micro-batches"
# topics = ["gradient-accumulation", "data-loading"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync", "torch.distributed.all_reduce"]
# departs = "No official example weighs by tokens; the rule that gradients are averaged over the ranks is the docstring's."
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_accumulate_by_tokens"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Accumulate when micro-batches and ranks have different numbers of tokens (padding, packing, masked prompts)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule


def train_step(
    model: FSDPModule,  # what fully_shard made of the model
    optimizer: torch.optim.Optimizer,
    loss_sum: Callable[[Any, Any], torch.Tensor],  # the sum over the tokens: cross_entropy(..., reduction="sum")
    count: Callable[[Any], int],  # the tokens that the loss counts, without padding
    micro_batches: Sequence[Any],  # as many on every rank
    device: torch.device,
) -> float:
    # A mean per micro-batch, averaged over micro-batches and ranks, would give a token in a short one more weight.
    tokens = torch.tensor(sum(count(batch) for batch in micro_batches), device=device)
    dist.all_reduce(tokens)
    total = torch.zeros((), device=device)
    for index, batch in enumerate(micro_batches):
        model.set_requires_gradient_sync(index == len(micro_batches) - 1)
        # FSDP divides the gradients by the number of ranks, so that is multiplied here.
        loss = loss_sum(model, batch) * dist.get_world_size() / tokens
        loss.backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)  # for the log only
    return total.item() / dist.get_world_size()
