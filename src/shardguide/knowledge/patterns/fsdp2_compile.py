# /// pattern
# id = "fsdp2-compile"
# title = "torch.compile of each block, before fully_shard"
# topics = ["compile", "wrapping"]
# follows = ["torch.nn.Module.compile", "torch.distributed.fsdp.fully_shard"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_compile"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Compile block by block and leave FSDP's hooks outside the compiled code."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_compiled(model: nn.Module, blocks: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    for block in blocks:
        # In place: the block stays the same module with the same parameter names. (torch.compile(block) would return a
        # wrapper, whose _orig_mod. prefix gets into the names.) Equal blocks share one compilation.
        block.compile()
        # The hooks that gather and free are not compiled; between two blocks they run as they are.
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


# With activation checkpointing the order is: checkpoint_wrapper, then compile, then fully_shard.
