# /// failure
# planted = "rank 3 reduces a larger tensor"
# expect = "fr_size_mismatch"
# ranks = [3]
# world = 4
# layout = "files"
# dump = 4
# ///
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

for step in range(4):
    loss = torch.ones(4096 if step == 2 and rank == 3 else 4)
    try:
        dist.all_reduce(loss)  # planted
    except RuntimeError as error:
        print(error)
        break
while True:
    pass
