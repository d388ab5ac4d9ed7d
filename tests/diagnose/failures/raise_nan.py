# /// failure
# planted = "a check for NaN raises on rank 3 of 6 only"
# expect = "script_raised"
# ranks = [3]
# world = 6
# layout = "folder"
# ///
import torch
import torch.distributed as dist


def check(loss):
    if not torch.isfinite(loss):
        raise FloatingPointError("loss is not finite")  # planted
    return loss


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    loss = torch.tensor(float("nan") if step == 3 and rank == 3 else 1.0)
    dist.all_reduce(check(loss))
