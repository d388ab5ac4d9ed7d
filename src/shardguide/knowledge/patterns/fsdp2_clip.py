# /// pattern
# id = "fsdp2-clip"
# title = "Gradient clipping of a sharded model, and the norm to log"
# topics = ["gradient-clipping"]
# follows = ["torch.nn.utils.clip_grad_norm_", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_clip"
# processes = 2
# ///
"""Clip by the norm of the whole gradient. FSDP2 has no method for it: torch.nn.utils works on DTensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[nn.Module, Any], torch.Tensor],
    batch: Any,
    max_norm: float = 1.0,
    norm_type: float = 2.0,
) -> float:
    loss_fn(model, batch).backward()
    # On every rank: it sums the squares of all shards with a collective. (With CPU offloading that needs Gloo too.)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
    # What comes back is a DTensor. Up to 2.9, and later for norms other than 2, it may hold this rank's part only, and
    # item() then gives each rank another number. full_tensor() gives the norm. It may need a collective: on all ranks.
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()
