# /// pattern
# id = "fsdp2-meta-init"
# title = "A model larger than one device: meta device, shard, to_empty, initialise"
# topics = ["meta-device-init"]
# follows = ["https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html", "torch.nn.Module.to_empty"]
# departs = "The tutorial calls reset_parameters alone; here leftovers are looked for, and buffers are filled too."
# form = "fsdp2"
# test = "test_fsdp2.py::test_meta_init"
# processes = 2
# own = ["reset_parameters"]
# [run]
# '"cuda"' = '"cpu"'
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Build a model that no single device could hold: shapes first, then shards, then values."""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def build_sharded(
    build: Callable[[], nn.Module], layers: Callable[[nn.Module], Iterable[nn.Module]], mesh: DeviceMesh
) -> nn.Module:
    with torch.device("meta"):  # shapes and dtypes only, no memory
        model = build()
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

    model.to_empty(device="cuda")  # memory for this rank's shards, with whatever stood there before
    initialise(model)
    return model


def initialise(model: nn.Module) -> None:
    # The same seed on all ranks: on GPUs each rank then draws its own part of the same tensor. On the CPU there is no
    # such generator, and ranks with the same seed draw the same numbers for different shards.
    torch.manual_seed(0)
    for name, module in model.named_modules():
        owned = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
        elif owned:
            # Undefined memory that nothing fills would train silently. Buffers count too: rotary tables, masks and
            # running statistics are lost on the meta device, and those with persistent=False are in no checkpoint.
            raise ValueError(f"nothing initialises {name}: give it a reset_parameters() that fills all it owns")


# When a checkpoint follows, its values replace these; what it does not hold (such buffers) still comes from here.
