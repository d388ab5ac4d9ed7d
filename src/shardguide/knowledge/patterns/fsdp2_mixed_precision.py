# /// pattern
# id = "fsdp2-mixed-precision"
# title = "FSDP2 with bf16 computation, fp32 reduction and fp32 outputs"
# topics = ["mixed-precision"]
# follows = ["torch.distributed.fsdp.MixedPrecisionPolicy"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_mixed_precision"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Compute in bfloat16, reduce gradients and step in float32."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard_mixed(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # The shards keep the dtype that the parameters have now, and the optimizer works on them. So the model stays in
    # float32 here: model.bfloat16() before sharding would train without a float32 master copy.
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        raise ValueError("keep the parameters in float32; the policy casts the gathered copies")

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,  # gathered, and computed with; half the traffic of the all-gathers
        reduce_dtype=torch.float32,  # sums over many ranks lose too much in bfloat16
    )
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)

    # The policy is not inherited: each call needs it. float32 outputs for the loss, and of the root alone: what a layer
    # hands on must fit the root's bfloat16 norm and head.
    root = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    fully_shard(model, mesh=mesh, mp_policy=root)
    return model


# No torch.autocast around it: the policy casts parameters and inputs of whole modules, autocast single operations.
