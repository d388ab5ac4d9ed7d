# /// pattern
# id = "fsdp2-inspect"
# title = "Looking at a sharded model: shards, placements, the whole tensor"
# topics = ["dtensor", "shard-placement"]
# follows = ["torch.distributed.tensor.DTensor", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = "The tutorial walks model.parameters(), which can hold gathered tensors after a forward; state_dict() holds shards."
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_inspect"
# processes = 3
# ///
"""What a rank holds of each parameter, and how to see the whole of one."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def shards(model: nn.Module) -> list[tuple[str, tuple[int, ...], tuple[int, ...], str]]:
    """Name, shape of the whole, shape of this rank's part, placements."""
    rows = []
    # state_dict() frees what is still gathered (after a forward the root's parameters are) and names the shards.
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, DTensor):
            # shape is that of the whole; the local part may be smaller than elsewhere, or empty. Its padding is hidden.
            rows.append((name, tuple(tensor.shape), tuple(tensor.to_local().shape), str(tensor.placements)))
    return rows


def whole(model: nn.Module, name: str) -> torch.Tensor:
    """One whole parameter, on every rank."""
    # An all-gather: call it on all ranks, and print on one afterwards. Inside "if rank == 0" it hangs.
    tensor = model.state_dict()[name]
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
