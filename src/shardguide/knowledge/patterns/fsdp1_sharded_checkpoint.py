# /// pattern
# id = "fsdp1-sharded-checkpoint"
# title = "FSDP1: sharded checkpoint with DCP"
# topics = ["fsdp1-state-dicts", "distributed-checkpoint"]
# follows = ["torch.distributed.checkpoint.save", "torch.distributed.checkpoint.state_dict.get_state_dict"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_sharded_checkpoint"
# processes = 2
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def save(model, optimizer, folder):
    # get_state_dict asks FSDP1 for sharded entries by itself; no state_dict_type context is needed. The entries have the
    # original names and shapes, so an FSDP2 run of the same model loads this checkpoint as well.
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def load(model, optimizer, folder):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)
    # For FSDP1 this step is never optional: flat parameters take their values from it, the loaded tensors are copies.
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
