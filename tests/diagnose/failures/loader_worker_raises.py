# /// failure
# planted = "a worker of the data loader of rank 1 raises"
# expect = "dataloader_worker_raised"
# ranks = [1]
# ///
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.rank == 1 and index == 5:
            raise ValueError("sample 5 has no image")  # planted
        return torch.ones(4)


dist.init_process_group("gloo")
for batch in DataLoader(Samples(dist.get_rank()), batch_size=2, num_workers=1):
    loss = batch.sum()
    dist.all_reduce(loss)
