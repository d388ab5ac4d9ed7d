# /// failure
# planted = "samples of different lengths cannot be stacked into a batch on rank 2"
# expect = "dataloader_stack_sizes"
# ranks = [2]
# world = 3
# ///
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank = dist.get_rank()
samples = [torch.ones(4 + (index == 5 and rank == 2)) for index in range(8)]
for batch in DataLoader(samples, batch_size=2, num_workers=1):
    loss = batch.sum()
    dist.all_reduce(loss)
