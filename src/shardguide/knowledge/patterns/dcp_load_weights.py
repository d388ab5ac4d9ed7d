# /// pattern
# id = "dcp-load-weights"
# title = "Read only the weights of a training checkpoint"
# topics = ["distributed-checkpoint", "state-dict-helpers", "evaluation"]
# follows = ["torch.distributed.checkpoint.load", "torch.distributed.checkpoint.state_dict.set_model_state_dict"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_load_weights"
# processes = 2
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict


def load_weights(model, folder):
    # Only what is asked for is read: the optimizer's entries in the folder stay where they are, without an error.
    # The nesting must be that of the save: the weights were saved under "model".
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"])
