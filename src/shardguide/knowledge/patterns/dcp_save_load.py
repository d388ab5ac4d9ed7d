# /// pattern
# id = "dcp-save-load"
# title = "Save model and optimizer as shards, and resume"
# topics = ["distributed-checkpoint", "state-dict-helpers", "optimizer"]
# follows = ["torch.distributed.checkpoint.state_dict.get_state_dict", "https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html"]
# departs = "The recipe wraps both in a Stateful class; here the two calls stand alone, and the step travels with them."
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_save_load"
# processes = 2
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def save(model, optimizer, step, folder):
    # Every rank calls this. Each writes the shards it holds; nobody gathers the whole model.
    model_state, optimizer_state = get_state_dict(model, optimizer)
    # A new folder per checkpoint: a crash while writing must not damage the last good one.
    dcp.save({"model": model_state, "optimizer": optimizer_state, "step": step}, checkpoint_id=f"{folder}/{step}")


def resume(model, optimizer, step, folder):
    # Shard first, build the optimizer second, load third: dcp.load fills the tensors that it is given, so they decide
    # what this rank reads, and an empty dict would read nothing. A new optimizer has no states yet; get_state_dict makes them.
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=f"{folder}/{step}")
    # The tensors are filled by now. What is no tensor (learning rates, betas) came into `state` only, and is set here.
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return state["step"]
