# /// pattern
# id = "fsdp2-wrap-vision"
# title = "fully_shard on a staged vision model, and its BatchNorm statistics"
# topics = ["wrapping", "ignored-parameters"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = ""
# architecture = "vision"
# form = "fsdp2"
# test = "test_fsdp2.py::test_wrap_vision"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Wrap a vision model of several stages (ConvNeXt, Swin, ResNet); keep BatchNorm's statistics the same on all ranks."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_vision(model: nn.Module, stages: Sequence[nn.Sequential], mesh: DeviceMesh) -> nn.Module:
    # Channels double from stage to stage, so the early stages are small: one group for a whole stage there, since many
    # small collectives cost more than they save; one group per block in the late stages, where the parameters are.
    half = len(stages) // 2
    for stage in stages[:half]:
        fully_shard(stage, mesh=mesh)
    for stage in stages[half:]:
        for block in stage:
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # stem, last norm and classifier
    return model


@torch.no_grad()
def average_statistics(model: nn.Module) -> None:
    """Call it on all ranks before evaluation and before saving."""
    # FSDP neither shards nor synchronises buffers: running means and variances come from the rank's own images, so the
    # ranks drift apart. SyncBatchNorm, converted before sharding, is the exact and slower way (on GPUs only).
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer.div_(dist.get_world_size())
