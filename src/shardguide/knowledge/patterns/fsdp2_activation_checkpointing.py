# /// pattern
# id = "fsdp2-activation-checkpointing"
# title = "Activation checkpointing of each block, before fully_shard"
# topics = ["activation-checkpointing", "wrapping"]
# follows = ["torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper", "torch.distributed.fsdp.fully_shard"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_activation_checkpointing"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Keep only each block's input in forward, and compute the block again in backward."""

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_checkpointed(model: nn.Module, layers: nn.ModuleList, mesh: DeviceMesh, every: int = 1) -> nn.Module:
    for index, layer in enumerate(layers):
        # Checkpoint first, then shard the wrapper: FSDP's hooks then lie around the checkpoint, and the recomputation
        # uses the parameters that were gathered for this block's backward. State dicts keep their keys; the names in
        # model.named_parameters() get _checkpoint_wrapped_module in the middle.
        if index % every == 0:  # every=2 saves about half and recomputes half
            layers[index] = checkpoint_wrapper(layer)
        fully_shard(layers[index], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model
