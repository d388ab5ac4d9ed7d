"""How the model is sharded."""

import functools

import torch
from network import DecoderLayer
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

fp32_policy = MixedPrecision(param_dtype=torch.float32, reduce_dtype=torch.float32, buffer_dtype=torch.float32)


def get_wrapper():
    """Each decoder layer is a unit."""
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={DecoderLayer})


def shard(model, strategy=ShardingStrategy.FULL_SHARD):
    return FSDP(
        model,
        auto_wrap_policy=get_wrapper(),
        mixed_precision=fp32_policy,
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
        limit_all_gathers=True,
        use_orig_params=True,
    )
