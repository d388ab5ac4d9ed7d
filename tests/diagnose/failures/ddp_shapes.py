# /// failure
# planted = "the vocabulary of rank 1 is larger, so a parameter has another shape"
# expect = "ddp_model_differs_between_ranks"
# ranks = "any"
# layout = "files"
# ///
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
vocabulary = 105 if dist.get_rank() == 1 else 100
model = DistributedDataParallel(nn.Embedding(vocabulary, 4))  # planted
