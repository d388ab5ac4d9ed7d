# /// pattern
# id = "dcp-to-torch-save"
# title = "Turn a sharded checkpoint into one file, and back"
# topics = ["distributed-checkpoint", "load-full-checkpoint"]
# follows = ["torch.distributed.checkpoint.format_utils.dcp_to_torch_save", "https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_to_torch_save"
# processes = 2
# not_run = ""
# ///
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp


def to_one_file(folder, path):
    # One ordinary process, no launcher and no process group. It holds the whole checkpoint in CPU memory, optimizer included.
    # The file has the nesting of the save: torch.load(path)["model"] is what model.load_state_dict takes.
    dcp_to_torch_save(folder, path)


def to_shards(path, folder):
    # The way back: every tensor is stored whole, and ranks that load it read their part. Also one ordinary process.
    torch_save_to_dcp(path, folder)
