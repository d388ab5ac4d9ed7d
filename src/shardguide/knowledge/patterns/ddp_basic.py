# /// pattern
# id = "ddp-basic"
# title = "DistributedDataParallel, the whole loop"
# topics = ["ddp", "when-not-fsdp"]
# follows = ["torch.nn.parallel.DistributedDataParallel", "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_basic_loop_equals_one_process"
# processes = 2
# [run]
# 'device_ids=[device]' = 'device_ids=None'
# ///
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, device):
    # Move first, wrap then, build the optimizer last: DDP hooks the parameters that it finds, the optimizer holds the
    # same tensors. The constructor copies rank 0's parameters and buffers to all ranks: equal seeds are not needed.
    return DDP(model.to(device), device_ids=[device])  # on a CPU, or for a model on several GPUs: device_ids=None


def train(model, optimizer, batches, loss_of):
    """``batches``: this rank's part of each global batch, of the same size and number on every rank."""
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        # Through the wrapper, never model.module(...): the wrapper's forward prepares the reduction of the gradients.
        loss = loss_of(model(inputs), targets)
        # Gradients are averaged over the ranks while backward runs. With a loss that is a mean over the batch, the
        # result is the gradient of the mean over the global batch; with a sum it is too small by the world size.
        loss.backward()
        optimizer.step()  # the same numbers on every rank, so the copies stay equal without any exchange
        losses.append(loss.detach())
    return losses
