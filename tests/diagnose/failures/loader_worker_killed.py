# /// failure
# planted = "a worker of the data loader of rank 0 is killed"
# expect = "dataloader_worker_killed"
# ranks = [0]
# world = 3
# ///
import os
import signal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.rank == 0 and index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(4)


dist.init_process_group("gloo")
for batch in DataLoader(Samples(dist.get_rank()), batch_size=2, num_workers=1):
    loss = batch.sum()
    dist.all_reduce(loss)
