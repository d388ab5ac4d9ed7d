# /// pattern
# id = "dcp-load-partial"
# title = "Load a checkpoint that lacks some of the model's parameters"
# topics = ["distributed-checkpoint", "frozen-parameters"]
# follows = ["torch.distributed.checkpoint.DefaultLoadPlanner"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_load_partial"
# processes = 2
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict


def load_what_is_there(model, folder):
    """Returns the names that the checkpoint has not: a new head, adapters. They keep the values they had."""
    # Read the index first: with allow_partial_load a misspelt prefix would load nothing and say nothing.
    saved = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {"model": get_model_state_dict(model)}
    missing = [name for name in state["model"] if f"model.{name}" not in saved]
    # Without the planner's option a missing entry raises "Missing key in checkpoint state_dict". An entry of another shape
    # raises in any case since 2.6; before, its overlapping part was read without a word.
    dcp.load(state, checkpoint_id=folder, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    set_model_state_dict(model, state["model"])
    return missing
