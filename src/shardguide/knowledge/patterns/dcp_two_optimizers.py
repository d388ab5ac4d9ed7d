# /// pattern
# id = "dcp-two-optimizers"
# title = "One checkpoint for several optimizers"
# topics = ["distributed-checkpoint", "state-dict-helpers", "optimizer"]
# follows = ["torch.distributed.checkpoint.state_dict.get_state_dict", "torch.distributed.checkpoint.state_dict.StateDictOptions"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_two_optimizers"
# processes = 2
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

# States AND options (learning rate, weight decay) of each parameter are stored under its name. So the resumed run may have
# another number of optimizers or groups; without this, options are stored by the position of the group, which must then be there.
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def save(model, optimizers, folder):
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizers, options=FLAT)}, checkpoint_id=folder)


def load(model, optimizers, folder):
    state = {"optimizer": get_optimizer_state_dict(model, optimizers, options=FLAT)}
    dcp.load(state, checkpoint_id=folder)
    # The same options as at the save: they say how the dictionary is laid out.
    set_optimizer_state_dict(model, optimizers, optim_state_dict=state["optimizer"], options=FLAT)
