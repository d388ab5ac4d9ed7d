# /// pattern
# id = "dcp-data-position"
# title = "Random-number states and the position in the data, in the checkpoint"
# topics = ["distributed-checkpoint", "data-loading"]
# follows = ["torch.distributed.checkpoint.stateful.Stateful", "torch.utils.data.distributed.DistributedSampler"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_data_position"
# processes = 2
# not_run = ""
# [run]
# "torch.cuda.get_rng_state()" = "torch.get_rng_state()"
# "torch.cuda.set_rng_state(" = "torch.set_rng_state("
# ///
import itertools

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.stateful import Stateful


class Progress(Stateful):
    """Belongs beside the model into what is saved and loaded: {"model": ..., "progress": progress}."""

    def __init__(self):
        self.epoch, self.batch = 0, 0

    def state_dict(self):
        # What is no DTensor counts as the same on all ranks, and one copy is written. Random-number states differ
        # (dropout), so each rank has a key of its own. A run with more ranks would find no entry for the new ones.
        rng = {"cpu": torch.get_rng_state(), "device": torch.cuda.get_rng_state()}
        return {"epoch": self.epoch, "batch": self.batch, f"rng_{dist.get_rank()}": rng}

    def load_state_dict(self, state):
        self.epoch, self.batch = state["epoch"], state["batch"]
        rng = state[f"rng_{dist.get_rank()}"]
        torch.set_rng_state(rng["cpu"])
        torch.cuda.set_rng_state(rng["device"])

    def batches(self, loader):
        """The rest of the current epoch; the loader has a DistributedSampler."""
        loader.sampler.set_epoch(self.epoch)  # the order depends on it: the same epoch gives the same order again
        for batch in itertools.islice(loader, self.batch, None):
            self.batch += 1
            yield batch
        self.epoch, self.batch = self.epoch + 1, 0
