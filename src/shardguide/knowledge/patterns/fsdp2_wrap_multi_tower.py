# /// pattern
# id = "fsdp2-wrap-multi-tower"
# title = "fully_shard on two towers, each with blocks of its own"
# topics = ["wrapping", "forward-methods"]
# follows = ["torch.distributed.fsdp.fully_shard", "torch.distributed.fsdp.register_fsdp_forward_method"]
# departs = ""
# architecture = "multi-tower"
# form = "fsdp2"
# test = "test_fsdp2.py::test_wrap_multi_tower"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Wrap a model of several towers (image and text, query and document): blocks, towers, root."""

from collections.abc import Iterable

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


def shard_towers(
    model: nn.Module,
    towers: Iterable[nn.Module],
    blocks: tuple[type[nn.Module], ...],  # the towers' block classes; they may differ
    mesh: DeviceMesh,
    methods: Iterable[str] = (),  # for example ("encode_image", "encode_text"): other ways into the model
) -> nn.Module:
    # A scalar, such as CLIP's logit_scale, cannot be split (ValueError): one element does, held by the first rank.
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim == 0:
                setattr(module, name, nn.Parameter(parameter.detach().reshape(1), parameter.requires_grad))

    for tower in towers:
        for module in [module for module in tower.modules() if isinstance(module, blocks)]:
            fully_shard(module, mesh=mesh)
        # What a tower has besides its blocks, in a group per tower: it is freed while the other tower runs.
        fully_shard(tower, mesh=mesh)
    fully_shard(model, mesh=mesh)  # projections and the scale

    # The first FSDP module that runs becomes the root. A tower called by itself before the model would be one, and the
    # model's forward would then raise. Through these methods of the model, the model stays the root.
    for method in methods:
        register_fsdp_forward_method(model, method)
    return model


# Every rank must run the same towers in every step: a rank whose batch has no images runs the image tower on a blank
# image and multiplies the result by zero. Otherwise the others wait for its collectives.
