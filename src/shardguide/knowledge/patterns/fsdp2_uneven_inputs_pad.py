# /// pattern
# id = "fsdp2-uneven-inputs-pad"
# title = "Uneven data under FSDP: ranks without data take part with weight zero"
# topics = ["uneven-inputs-fsdp", "data-loading"]
# follows = ["torch.distributed.all_reduce"]
# departs = "Join, the official tool for uneven inputs, does not support FSDP; no official example shows another."
# form = "c10d"
# test = "test_fsdp2_more.py::test_uneven_inputs_pad"
# processes = 3
# ///
"""No sample is dropped: a rank that has run out computes a blank batch, so that all collectives match."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Any],  # any number on each rank, of any size
    loss_sum: Callable[[nn.Module, Any], torch.Tensor],  # the sum over the samples of a batch, not their mean
    blank: Any,  # a batch of real values and the usual shape; 0 * NaN would be NaN
    device: torch.device,
) -> list[float]:
    """The mean loss over the samples of all ranks, for each step."""
    history = []
    iterator = iter(batches)
    while True:
        batch = next(iterator, None)
        samples = torch.tensor(0 if batch is None else len(batch), device=device)
        dist.all_reduce(samples)  # of all ranks
        if not samples.item():
            return history  # nobody has data any more, and all ranks know it
        loss = loss_sum(model, blank if batch is None else batch)
        # FSDP divides the sum of the ranks' gradients by their number. Undone here, and divided by the samples of the
        # step: the mean over the samples, however they are spread. The blank batch counts nothing.
        weight = 0.0 if batch is None else dist.get_world_size() / samples
        (loss * weight).backward()
        optimizer.step()
        optimizer.zero_grad()

        total = loss.detach() * (batch is not None)
        dist.all_reduce(total)
        history.append((total / samples).item())
