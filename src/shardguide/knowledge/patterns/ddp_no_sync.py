# /// pattern
# id = "ddp-no-sync"
# title = "Several micro-batches per step under DDP"
# topics = ["ddp-gradient-accumulation", "gradient-accumulation"]
# follows = ["torch.nn.parallel.DistributedDataParallel.no_sync"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_accumulation_equals_one_process_and_reduces_once"
# processes = 2
# ///
from contextlib import nullcontext


def step(model, optimizer, micro_batches, loss_of):
    """One optimizer step over ``micro_batches``: a list, as long on every rank; the mean loss of this rank."""
    optimizer.zero_grad()
    total = 0.0
    for number, (inputs, targets) in enumerate(micro_batches, 1):
        last = number == len(micro_batches)
        # no_sync keeps gradients local; the first backward outside it reduces everything that has added up.
        with nullcontext() if last else model.no_sync():
            # The forward belongs inside: there DDP decides whether this backward will reduce.
            loss = loss_of(model(inputs), targets) / len(micro_batches)
            loss.backward()
        total += loss.detach()
    # Clip here, once the gradients are the global ones.
    optimizer.step()
    return total
