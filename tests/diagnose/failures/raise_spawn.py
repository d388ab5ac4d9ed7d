# /// failure
# planted = "rank 1 of a job that was started by torch.multiprocessing raises"
# expect = "script_raised"
# ranks = [1]
# world = 3
# layout = "plain"
# ///
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, world):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo")
    for step in range(4):
        loss = torch.ones(1)
        if step == 2 and rank == 1:
            raise RuntimeError("cannot read shard 17")  # planted
        dist.all_reduce(loss)


if __name__ == "__main__":
    mp.start_processes(train, args=(3,), nprocs=3, start_method="fork")
