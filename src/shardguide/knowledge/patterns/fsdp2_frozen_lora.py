# /// pattern
# id = "fsdp2-frozen-lora"
# title = "A frozen model with LoRA adapters under FSDP2"
# topics = ["frozen-parameters", "wrapping", "optimizer"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = "No official example has LoRA; the docstring only says how groups are made."
# form = "fsdp2"
# test = "test_fsdp2_more.py::test_frozen_lora"
# processes = 2
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Train small adapters on a frozen, sharded model. Frozen and trained parameters may be in one group."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


class LoRA(nn.Module):
    """A frozen linear layer plus a trained product of two small matrices."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        # The dtype of the base: before 2.8 all parameters of a group must have one dtype, the frozen ones too (since
        # then, the trained ones).
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.down = nn.Linear(base.in_features, rank, bias=False, **like)
        self.up = nn.Linear(rank, base.out_features, bias=False, **like)
        nn.init.zeros_(self.up.weight)  # starts as the base alone

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def shard_lora(
    model: nn.Module, layers: Iterable[nn.Module], targets: tuple[str, ...], rank: int, mesh: DeviceMesh
) -> torch.optim.Optimizer:
    model.requires_grad_(False)  # before sharding: the sharded parameters take it over
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, LoRA(child, rank))
    for layer in layers:
        # Frozen parameters are gathered like the others, and never reduced: without trained ones no reduce-scatter.
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # States for the adapters only: that is where LoRA saves most.
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
