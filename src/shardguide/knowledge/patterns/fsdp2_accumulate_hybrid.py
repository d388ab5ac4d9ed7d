# /// pattern
# id = "fsdp2-accumulate-hybrid"
# title = "Gradient accumulation under HSDP: reduce within the node, all-reduce once"
# topics = ["gradient-accumulation", "hybrid-sharding"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_requires_all_reduce"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_accumulate_hybrid"
# processes = 4
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Several micro-batches per step on a mesh of two dimensions; only the traffic between nodes waits for the last one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule


def train_step(
    model: FSDPModule,  # what fully_shard made of the model, on a mesh (replicate, shard)
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    micro_batches: Sequence[Any],  # as many on every rank
) -> torch.Tensor:
    losses = []
    for index, batch in enumerate(micro_batches):
        # Reduce-scatter every time, over the fast links within a node, so that gradients stay shards; all-reduce over
        # the slow ones once. set_requires_gradient_sync would switch both and so keep whole gradients.
        model.set_requires_all_reduce(index == len(micro_batches) - 1)
        loss = loss_fn(model, batch) / len(micro_batches)
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack(losses).sum()
