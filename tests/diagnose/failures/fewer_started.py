# /// failure
# planted = "WORLD_SIZE is 4 and two ranks were started"
# expect = "fewer_ranks_than_world_size"
# ranks = [2, 3]
# layout = "files"
# world = 4
# started = 2
# limit = 60
# ///
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
