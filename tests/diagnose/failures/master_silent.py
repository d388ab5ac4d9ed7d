# /// failure
# planted = "nobody listens at the master address: rank 0 was not started"
# expect = "store_unreachable"
# ranks = [1, 2]
# layout = "files"
# world = 3
# limit = 60
# ///
import os
import sys
import time
from datetime import timedelta

import torch.distributed as dist

if os.environ["RANK"] == "0":
    time.sleep(10)
    sys.exit(0)
dist.init_process_group("gloo", timeout=timedelta(seconds=4))
