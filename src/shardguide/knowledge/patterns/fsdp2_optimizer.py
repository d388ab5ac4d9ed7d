# /// pattern
# id = "fsdp2-optimizer"
# title = "The optimizer after sharding, with parameter groups"
# topics = ["optimizer"]
# follows = ["https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html", "torch.optim.AdamW"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_optimizer"
# processes = 2
# [before."2.5"]
# "from torch.distributed.tensor import" = "from torch.distributed._tensor import"
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Make the optimizer after fully_shard, over the sharded parameters, with and without weight decay."""

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def make_optimizer(model: FSDPModule, lr: float = 3e-4, weight_decay: float = 0.1) -> torch.optim.Optimizer:
    # fully_shard puts new parameters (DTensors) into the module. An optimizer made before it keeps the old ones, whose
    # gradients stay None: it steps without an error and changes nothing. Made after a forward it is wrong too, since
    # parameters() may then give the gathered tensors (those of the root are kept until its backward).
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not all(isinstance(parameter, DTensor) for parameter in trainable):
        raise ValueError("make the optimizer after fully_shard and before the first forward")

    # A DTensor has the shape of the whole parameter, so the usual rule works: matrices decay, biases and norms do not.
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    # Its states take the shape and sharding of the parameters. fused is one kernel for many tensors; all tensors of one
    # group must then lie on the same mesh.
    return torch.optim.AdamW(groups, lr=lr, fused=True)
