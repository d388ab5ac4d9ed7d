# /// pattern
# id = "join-throw-early"
# title = "End the epoch on all ranks when the first runs out of inputs"
# topics = ["join-early-termination", "join", "data-loading"]
# follows = ["torch.distributed.algorithms.join.Join", "torch.nn.parallel.DistributedDataParallel.join"]
# departs = ""
# form = "ddp"
# test = "test_join.py::test_every_rank_stops_with_the_first"
# processes = 3
# ///
from torch.distributed.algorithms.join import Join


def train(model, optimizer, batches, loss_of):
    """One epoch as long as the shortest rank's; the number of steps, the same on every rank."""
    steps = 0
    try:
        # Also the only choice where the loop has collectives that Join does not know: SyncBatchNorm, a metric.
        with Join([model], throw_on_early_termination=True):
            for inputs, targets in batches:
                optimizer.zero_grad()
                # A rank that still has inputs raises here, in the forward, before it has done anything with the batch.
                loss_of(model(inputs), targets).backward()
                optimizer.step()
                steps += 1
        # A rank that has run out raises at the end of the block. All in the same iteration, so nobody hangs.
    except RuntimeError as error:
        if "exhausted" not in str(error):  # an error of its own (out of memory, a wrong shape) is not the end of data
            raise
    Join([model], enable=False)  # Join stays on after its block; an evaluation would still notify it
    return steps
