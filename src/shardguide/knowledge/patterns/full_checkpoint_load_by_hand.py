# /// pattern
# id = "full-checkpoint-load-by-hand"
# title = "Load a whole checkpoint parameter by parameter with distribute_tensor"
# topics = ["load-full-checkpoint", "meta-device-init", "dtensor"]
# follows = ["torch.distributed.tensor.distribute_tensor", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = "The parameter's own dtype is kept (assigning would take the file's), and buffers are copied as they are."
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_full_checkpoint_load_by_hand"
# processes = 2
# not_run = ""
# [run]
# '"cuda"' = '"cpu"'
# [before."2.6"]
# "from torch.distributed.fsdp import fully_shard" = "from torch.distributed._composable.fsdp import fully_shard"
# [before."2.5"]
# "from torch.distributed.tensor import" = "from torch.distributed._tensor import"
# ///
import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def build(make_model):
    with torch.device("meta"):  # shapes only
        model = make_model()
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def load_full(model, path):
    """Every rank reads the file. Non-persistent buffers are not in it: they stay on the meta device until you fill them."""
    full = torch.load(path, map_location="cpu", mmap=True, weights_only=True)["model"]
    state = {}
    for name, meta in model.state_dict().items():
        value = full[name].to(meta.dtype)
        if isinstance(meta, DTensor):
            # The first rank of the mesh scatters its values; the others' arguments only have to have the shape.
            value = distribute_tensor(value, meta.device_mesh, meta.placements)
        else:
            value = value.to("cuda")
        state[name] = value
    # A meta parameter can't be copied into; assign=True puts new parameters in its place.
    # So build the optimizer afterwards: one that was built before would hold on to the meta parameters. And a tied weight
    # comes apart, since each of its names gets a parameter of its own: take set_model_state_dict for such a model.
    model.load_state_dict(state, assign=True)
