# /// failure
# planted = "the script is started without a launcher"
# expect = "env_rendezvous_variable"
# ranks = []
# layout = "plain"
# world = 1
# ///
import os

import torch.distributed as dist

for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
    os.environ.pop(name)
dist.init_process_group("gloo")  # planted
