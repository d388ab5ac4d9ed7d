# /// pattern
# id = "ddp-join"
# title = "DDP's own join(): the last epoch, or an optimizer without states"
# topics = ["join", "data-loading"]
# follows = ["torch.nn.parallel.DistributedDataParallel.join"]
# departs = "Says what the docstring leaves out: optimizer states of ranks that ran out stay behind, and the setting stays on."
# form = "ddp"
# test = "test_join.py::test_join_of_the_model_divides_as_it_is_told"
# processes = 3
# ///
from torch.distributed.algorithms.join import Join


def train(model, optimizer, batches, loss_of, divide_by_all=True):
    """``batches``: of any number on each rank. A rank that is done makes empty reductions until all are done."""
    # True: every sample weighs the same, the last steps are small ones. False: the remaining ranks count as the whole
    # world, so their last batches weigh more. Calling model.join(...) without "with" does nothing.
    with model.join(divide_by_initial_world_size=divide_by_all):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
    # At the end all ranks get the weights of one that came last. Only the weights: momentum or Adam's moments of the
    # others lack its last steps, and with them the copies drift apart in a further epoch (see join-ddp).
    Join([model], enable=False)  # Join stays on after its block; an evaluation would still notify it
