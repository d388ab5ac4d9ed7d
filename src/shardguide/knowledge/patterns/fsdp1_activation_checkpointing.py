# /// pattern
# id = "fsdp1-activation-checkpointing"
# title = "FSDP1: recompute the activations of each layer"
# topics = ["activation-checkpointing", "fsdp1-wrapping"]
# follows = ["torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing"]
# departs = ""
# architecture = "transformer"
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_activation_checkpointing"
# processes = 2
# not_run = ""
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import functools

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model, layer_class):
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
    # After wrapping: the layer inside each FSDP unit is replaced, which gives FSDP(checkpoint(layer)). Recomputation happens in
    # the unit, on the parameters that were gathered for its backward: no all-gather is added. Names stay clean in state dicts.
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        check_fn=lambda module: isinstance(module, layer_class),
    )
    return model
