# /// pattern
# id = "fsdp1-accumulate"
# title = "FSDP1: accumulate gradients with no_sync"
# topics = ["gradient-accumulation", "fsdp1-no-sync"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel.no_sync"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_accumulate"
# processes = 2
# not_run = ""
# ///
import contextlib


def step(model, optimizer, micro_batches, loss_fn):
    last = len(micro_batches) - 1
    total = 0.0
    for index, (inputs, targets) in enumerate(micro_batches):
        # Within no_sync gradients stay unsharded on each rank and nothing is reduced: less communication, but memory for all
        # gradients of the model. Where that is too much, leave no_sync out: the result is the same.
        with model.no_sync() if index < last else contextlib.nullcontext():
            # Divided by their number: the sum of the micro-batches' means is the mean of the whole batch.
            loss = loss_fn(model(inputs), targets) / len(micro_batches)
            loss.backward()  # inside the context, like forward
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    return total
