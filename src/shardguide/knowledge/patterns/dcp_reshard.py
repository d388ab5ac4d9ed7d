# /// pattern
# id = "dcp-reshard"
# title = "Load a checkpoint with another number of ranks or another mesh"
# topics = ["distributed-checkpoint", "elastic-restarts", "device-mesh"]
# follows = ["torch.distributed.checkpoint.load", "https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_reshard"
# processes = 4
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def save(model, optimizer, folder):
    # Entries are stored by parameter name with the global shape, not by rank: that makes the checkpoint independent of the mesh.
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def load(model, optimizer, folder):
    # The same code on 2 or 4 ranks, with FSDP, HSDP or FSDP and tensor parallelism: each rank reads the pieces of the files
    # that overlap its own shards. Names and global shapes must be the same, so give both runs the same model code.
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
