# /// pattern
# id = "fsdp2-uneven-inputs-agree"
# title = "Uneven data under FSDP: agree on the number of steps"
# topics = ["uneven-inputs-fsdp", "data-loading"]
# follows = ["torch.distributed.all_reduce"]
# departs = "Join, the official tool for uneven inputs, does not support FSDP; no official example shows another."
# form = "c10d"
# test = "test_fsdp2_more.py::test_uneven_inputs_agree"
# processes = 3
# ///
"""All ranks take the same number of steps; what some have more is left for the next epoch."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist


def common_steps(own_steps: int, device: torch.device) -> int:
    """The smallest number of batches that a rank has. Once per epoch, where the loader has a length."""
    steps = torch.tensor(own_steps, device=device)
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)
    return int(steps.item())


def equal_batches(loader: Iterable[Any], own_steps: int, device: torch.device) -> Iterator[Any]:
    # Join does not work here: it shadows DDP's collectives, but a rank that has finished an FSDP epoch is still needed
    # for the all-gather of every layer.
    return islice(loader, common_steps(own_steps, device))


def batches_while_all_have_one(loader: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """For a stream whose length nobody knows: one small collective before each step."""
    for batch in loader:
        if not _all_have_one(True, device):
            return
        yield batch
    _all_have_one(False, device)  # the others are asking now, or have stopped already because someone else had none


def _all_have_one(mine: bool, device: torch.device) -> bool:
    has_one = torch.tensor(int(mine), device=device)
    dist.all_reduce(has_one, op=dist.ReduceOp.MIN)
    return bool(has_one.item())
