# /// pattern
# id = "ddp-evaluate"
# title = "Evaluation under DDP over every sample exactly once"
# topics = ["evaluation", "ddp", "data-loading"]
# follows = ["torch.nn.parallel.DistributedDataParallel", "torch.distributed.all_reduce"]
# departs = "Examples evaluate with a DistributedSampler, which repeats samples until the ranks have equally many; here nothing is counted twice."
# form = "ddp"
# test = "test_ddp.py::test_evaluation_counts_every_sample_once"
# processes = 2
# ///
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def evaluate(model, dataset, batch_size, device, sum_of_losses):
    """Mean loss over ``dataset``, the same on every rank. ``sum_of_losses``: summed over a batch, not averaged."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = Subset(dataset, range(rank, len(dataset), world_size))  # may be one longer on some ranks
    # The bare module makes no collectives, so ranks may have different numbers of batches, or none. DDP's own forward
    # sends the buffers (BatchNorm statistics) from rank 0, in eval mode too, the first time after a training step.
    # Here that is done by hand: since the last training step every rank has statistics of its own.
    module = model.module.eval()
    for buffer in module.buffers():
        dist.broadcast(buffer, src=0)
    total = torch.zeros(2, device=device, dtype=torch.float64)
    with torch.no_grad():
        for inputs, targets in DataLoader(share, batch_size=batch_size):
            total[0] += sum_of_losses(module(inputs.to(device)), targets.to(device))
            total[1] += len(inputs)
    # Sums and counts, once, at the end: a mean of the ranks' means is wrong where they have different numbers.
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()
