# /// pattern
# id = "fsdp2-keep-gathered"
# title = "Inference with the parameters kept gathered between forwards"
# topics = ["evaluation", "reshard-after-forward"]
# follows = ["torch.distributed.fsdp.FSDPModule.set_reshard_after_forward"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_keep_gathered"
# processes = 2
# ///
"""For many forwards without a backward (evaluation, generation): gather once, if the whole model fits on the GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.fsdp import FSDPModule


@contextmanager
def gathered(model: FSDPModule) -> Iterator[None]:
    model.set_reshard_after_forward(False)  # from the second forward on there is no all-gather
    try:
        yield
    finally:
        # For the layers as before (if they had the default). The root's own default is False; set it apart if it counts.
        model.set_reshard_after_forward(True)
        # The setting frees nothing by itself, and the optimizer works on the shards: without this the next forward
        # would use the gathered copies, which a step in between has not changed.
        free(model)


def free(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # not recursive
