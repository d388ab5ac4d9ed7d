# /// pattern
# id = "ddp-sampler"
# title = "Each rank its own part of the data, newly shuffled in each epoch"
# topics = ["data-loading", "ddp"]
# follows = ["torch.utils.data.distributed.DistributedSampler"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_sampler_gives_each_sample_once_and_a_new_order"
# processes = 2
# ///
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def loader_for(dataset, batch_size, seed=0):
    """``batch_size`` per rank; the global batch is that times the world size."""
    sampler = DistributedSampler(
        dataset,
        shuffle=True,  # here, not in DataLoader: a sampler and shuffle=True exclude each other there
        seed=seed,  # the same on every rank, or the parts overlap
        # Equal numbers on every rank either way: True leaves out the tail, False repeats samples from the beginning.
        drop_last=True,
    )
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True), sampler


def epochs(loader, sampler, number):
    for epoch in range(number):
        # Before the iteration starts: without it every epoch has the order of the first.
        sampler.set_epoch(epoch)
        yield from loader
