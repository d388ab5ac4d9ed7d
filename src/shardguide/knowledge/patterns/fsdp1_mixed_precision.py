# /// pattern
# id = "fsdp1-mixed-precision"
# title = "FSDP1: bf16 computation, fp32 parameters and reduction"
# topics = ["mixed-precision", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.MixedPrecision"]
# departs = "reduce_dtype is fp32 instead of the parameters' dtype: summing over many ranks in bf16 loses digits."
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_mixed_precision"
# processes = 2
# not_run = ""
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model, layer_class):
    # Pass the model in fp32: the shards, gradients and optimizer states then stay fp32, only the gathered copies are bf16.
    precision = MixedPrecision(
        param_dtype=torch.bfloat16,  # all-gather and computation; floating-point inputs are cast too
        reduce_dtype=torch.float32,  # default: param_dtype
        buffer_dtype=torch.float32,  # casts ALL floating-point buffers, permanently; rotary tables want fp32
    )
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        mixed_precision=precision,
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
