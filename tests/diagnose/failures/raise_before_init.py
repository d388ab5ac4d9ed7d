# /// failure
# planted = "rank 2 raises before init_process_group, the others wait in it"
# expect = "file_missing_on_rank"
# ranks = [2]
# world = 4
# ///
import json
import os
from pathlib import Path

import torch.distributed as dist

if os.environ["RANK"] == "2":
    settings = json.loads(Path("settings_of_rank_2.json").read_text())  # planted
dist.init_process_group("gloo")
dist.barrier()
