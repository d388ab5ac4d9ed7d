# /// pattern
# id = "fsdp2-fp16-scaler"
# title = "FSDP2 in float16 with the ordinary GradScaler"
# topics = ["fp16-loss-scaling", "mixed-precision", "gradient-clipping"]
# follows = ["torch.distributed.fsdp.MixedPrecisionPolicy", "torch.amp.GradScaler", "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"]
# departs = "The page scales under autocast; here the policy of fully_shard chooses the dtype."
# form = "fsdp2"
# test = "test_fsdp2_step.py::test_fp16_scaler"
# processes = 2
# [run]
# '"cuda"' = '"cpu"'
# ///
"""Train in float16 with loss scaling. FSDP1's ShardedGradScaler is not needed: GradScaler understands DTensors."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard_fp16(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # Reduced in float32: a scaled float16 gradient summed over many ranks may overflow though no rank's own did.
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    # float32 outputs for the loss, and of the root alone: what a layer hands on must fit the root's float16 norm and head.
    root = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    fully_shard(model, mesh=mesh, mp_policy=root)
    return model


def make_scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cuda")  # one for the whole run; save its state_dict() with the checkpoint


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    loss_fn: Callable[[nn.Module, Any], torch.Tensor],
    batch: Any,
    max_norm: float = 1.0,
) -> torch.Tensor:
    loss = loss_fn(model, batch)
    scaler.scale(loss).backward()
    # Before clipping, so that max_norm means the real gradients. An infinity in one rank's shard is made known to all
    # here, so that all ranks skip the step together.
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()  # the same new scale on every rank
    optimizer.zero_grad()
    return loss.detach()
