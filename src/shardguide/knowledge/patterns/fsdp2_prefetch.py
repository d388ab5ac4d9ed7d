# /// pattern
# id = "fsdp2-prefetch"
# title = "Explicit prefetching: which all-gathers each layer starts"
# topics = ["prefetching"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_modules_to_forward_prefetch", "torch.distributed.fsdp.FSDPModule.set_modules_to_backward_prefetch", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_prefetch"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Tell every layer which other layers' parameters to start gathering while it computes."""

from collections.abc import Sequence

from torch.distributed.fsdp import FSDPModule


def prefetch(layers: Sequence[FSDPModule], distance: int = 2) -> None:
    """``layers``: what fully_shard was called on, in the order in which the model runs them, the root left out."""
    # Without this FSDP overlaps by itself: one layer ahead, as long as the CPU runs ahead of the GPU. A distance of 1
    # helps when the CPU is late; 2 hides more, and holds one more layer's gathered parameters in memory.
    for index, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(list(layers[index + 1 : index + 1 + distance]))
        # Backward runs the other way round; the nearest first.
        layer.set_modules_to_backward_prefetch(list(reversed(layers[max(0, index - distance) : index])))


def start_step(model: FSDPModule) -> None:
    """After the last optimizer step, before the batch is there: the root's all-gather begins, and forward waits for it."""
    model.unshard(async_op=True)


# Call prefetch() after sharding. The lists must match the order on every rank: a layer that one rank skips, yet prefetches, is
# gathered for nothing, and the ranks' collectives still have to match.
