# /// pattern
# id = "fsdp1-compile"
# title = "FSDP1 and torch.compile"
# topics = ["compile", "fsdp1-flat-parameters"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_compile"
# processes = 2
# not_run = ""
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model, layer_class):
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        device_id=torch.cuda.current_device(),
        use_orig_params=True,  # required: the compiler cannot follow parameters that are views of a flat one
    )
    # After wrapping. The graph breaks at each FSDP unit, so that its hooks run eagerly and the layers are compiled one by one.
    return torch.compile(model)
