# /// failure
# planted = "torch.load of a checkpoint with an object of the training script"
# expect = "weights_only_default"
# ranks = "any"
# ///
import os
from argparse import Namespace

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = f"{os.environ['WORK']}/model-{dist.get_rank()}.pt"
torch.save({"step": 3, "arguments": Namespace(lr=0.1)}, path)
state = torch.load(path)  # planted
