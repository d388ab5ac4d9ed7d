# /// pattern
# id = "dcp-stateful"
# title = "One Stateful object for model, optimizer, scheduler and step"
# topics = ["distributed-checkpoint", "state-dict-helpers"]
# follows = ["torch.distributed.checkpoint.stateful.Stateful", "https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html"]
# departs = "The learning-rate scheduler and the step are added: without them a resumed run differs from one that was never stopped."
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_dcp_stateful"
# processes = 2
# not_run = ""
# ///
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful


class AppState(Stateful):
    """All that a resumed run needs; dcp.save and dcp.load call the two methods by themselves."""

    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler, self.step = model, optimizer, scheduler, 0

    def state_dict(self):
        # dcp.load calls this too, to learn what to read and where to put it.
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "scheduler": self.scheduler.state_dict(), "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]


def save(app, folder):
    dcp.save({"app": app}, checkpoint_id=f"{folder}/{app.step}")


def resume(app, step, folder):
    # Under the key of the save: entries are called app.model.…, and {"model": …} would look for others in vain.
    dcp.load({"app": app}, checkpoint_id=f"{folder}/{step}")
