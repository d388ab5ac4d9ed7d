# /// failure
# planted = "rank 1 has an additional layer"
# expect = "ddp_model_differs_between_ranks"
# ranks = "any"
# layout = "files"
# ///
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
layers = [nn.Linear(4, 4) for _ in range(3 if dist.get_rank() == 1 else 2)]
model = DistributedDataParallel(nn.Sequential(*layers))  # planted
