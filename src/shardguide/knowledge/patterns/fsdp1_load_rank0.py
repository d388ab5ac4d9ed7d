# /// pattern
# id = "fsdp1-load-rank0"
# title = "FSDP1: rank 0 reads the weights, the others get them while the model is wrapped"
# topics = ["load-full-checkpoint", "meta-device-init", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = ""
# processes = 0
# not_run = "needs a GPU: on the CPU sync_module_states=True raises 'The module has CPU parameters or buffers when `sync_module_states=True`, which requires them to be on GPU' (2.13.0). With only that check removed, 2 processes over Gloo start from rank 0's weights and train as one process does."
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def build(make_model, layer_class, path):
    if dist.get_rank() == 0:
        model = make_model()
        model.load_state_dict(torch.load(path, map_location="cpu"))
        fill = None
    else:
        with torch.device("meta"):  # host memory for one copy per job, not one per rank
            model = make_model()

        def fill(module):  # memory without values: rank 0's arrive by the broadcast
            module.to_empty(device=torch.cuda.current_device(), recurse=False)

    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({layer_class}),
        param_init_fn=fill,
        sync_module_states=True,  # broadcasts parameters AND buffers of each unit before it is sharded; needs device_id
        device_id=torch.cuda.current_device(),
        use_orig_params=True,
    )
