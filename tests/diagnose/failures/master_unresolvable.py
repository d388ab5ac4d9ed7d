# /// failure
# planted = "MASTER_ADDR is a name that does not exist"
# expect = "store_name_unresolved"
# ranks = "any"
# layout = "files"
# env = { MASTER_ADDR = "gpu-head-0.invalid" }
# limit = 60
# ///
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=4))
