# /// pattern
# id = "dcp-async-save"
# title = "Write the checkpoint while training goes on"
# topics = ["distributed-checkpoint", "several-backends"]
# follows = ["torch.distributed.checkpoint.async_save", "https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html"]
# departs = "The recipe gives the default group a CPU backend; here the checkpoint has a Gloo group of its own, so that its thread's collectives never mix with those of training."
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_async_save"
# processes = 2
# not_run = ""
# ///
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict


class AsyncCheckpoint:
    """Saves in a thread; at most one checkpoint is under way."""

    def __init__(self):
        # async_save asserts that its group has a CPU backend: NCCL alone is refused. Every rank makes the group.
        self.group = dist.new_group(backend="gloo")
        self.pending = None

    def save(self, model, optimizer, path):
        self.wait()  # two at once would hold two copies in CPU memory, and their collectives could cross
        model_state, optimizer_state = get_state_dict(model, optimizer)
        # Returns once the shards are copied to CPU memory: the next optimizer step can't change what is written.
        self.pending = dcp.async_save(
            {"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path, process_group=self.group
        )

    def wait(self):
        """Before the next save and before the program ends; an error of the writing thread is raised here, not earlier."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None
