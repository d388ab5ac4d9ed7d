# /// pattern
# id = "fsdp1-meta-init"
# title = "FSDP1: build on the meta device, initialise unit by unit"
# topics = ["meta-device-init", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_meta_init"
# processes = 2
# not_run = ""
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(make_model, layer_class):
    with torch.device("meta"):
        model = make_model()

    def materialise(module):
        # Called for EVERY module of an FSDP unit, also for those without parameters or buffers of their own; one unit is
        # filled and sharded before the next, so that the whole model is never in memory.
        if any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
            module.to_empty(device=torch.cuda.current_device(), recurse=False)  # its children get a call of their own
            # A module of your own needs this method, too, and it must fill the buffers as well as the parameters.
            # Seed all ranks equally before, or replicated tensors differ between ranks.
            module.reset_parameters()

    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        param_init_fn=materialise,
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
