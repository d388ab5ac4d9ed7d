# /// failure
# planted = "rank 5 of 8 raises under srun --label"
# expect = "script_raised"
# ranks = [5]
# world = 8
# layout = "srun"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    loss = torch.ones(1)
    if step == 2 and rank == 5:
        raise ValueError(f"loss is nan at step {step}")  # planted
    dist.all_reduce(loss)
