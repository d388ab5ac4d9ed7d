# /// failure
# planted = "a KeyError of the training script on rank 1"
# expect = "script_raised"
# ranks = [1]
# world = 4
# ///
import torch
import torch.distributed as dist


def batch(rank, step):
    table = {"input_ids": torch.ones(4)}
    return table["labels" if step == 3 and rank == 1 else "input_ids"]  # planted


dist.init_process_group("gloo")
for step in range(6):
    loss = batch(dist.get_rank(), step).sum()
    dist.all_reduce(loss)
