"""Distributed set-up."""
import functools
import logging

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

logger = logging.getLogger(__name__)


def is_fsdp(model) -> bool:
    return isinstance(model, fsdp.FullyShardedDataParallel)


def unwrap(model):
    """The model itself, without any wrapper."""
    while hasattr(model, "module"):
        model = model.module
    return model


def shard(model, layer_cls, strategy: str = "FULL_SHARD", recompute: bool = False):
    strategy = getattr(fsdp.ShardingStrategy, strategy)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer_cls})
    logger.info("sharding with %s", strategy)
    model = fsdp.FullyShardedDataParallel(
        model, sharding_strategy=strategy, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
    )
    if recompute:
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, layer_cls))
    return model


def grad_norm(model, max_norm: float):
    if is_fsdp(model):
        return model.clip_grad_norm_(max_norm)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
