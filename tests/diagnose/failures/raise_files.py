# /// failure
# planted = "rank 1 raises, each rank writes its own file, no torchrun"
# expect = "shape_matmul"
# ranks = [1]
# world = 4
# layout = "files"
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weight = torch.ones(4, 4)
for step in range(5):
    width = 5 if step == 3 and rank == 1 else 4
    loss = (torch.ones(2, width) @ weight).sum()  # planted
    dist.all_reduce(loss)
    print(f"step {step} loss {loss.item():.1f}")
