# /// pattern
# id = "join-enable-off"
# title = "Join switched on only where the inputs are uneven"
# topics = ["join-early-termination", "join"]
# follows = ["torch.distributed.algorithms.join.Join"]
# departs = ""
# form = "ddp"
# test = "test_join.py::test_detection_costs_nothing_where_it_is_off"
# processes = 2
# ///
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join


def uneven(steps, device):
    """Whether the ranks have different numbers of ``steps``; the same answer on every rank."""
    bounds = torch.tensor([steps, -steps], device=device)
    dist.all_reduce(bounds, op=dist.ReduceOp.MAX)  # the largest, and minus the smallest
    return bounds[0].item() != -bounds[1].item()


def train(model, optimizer, batches, loss_of, device):
    # Detection costs two small all-reduces in every forward of DDP. enable=False makes Join do nothing: right only when
    # all ranks know that the numbers are equal, and all must say the same, or the collectives no longer match.
    with Join([model], enable=uneven(len(batches), device)):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
    # Join leaves its setting in the model: every later forward, evaluation too, would still notify a Join that is over,
    # and a forward on one rank only would mix with the next collective of the others. This turns it off.
    Join([model], enable=False)
