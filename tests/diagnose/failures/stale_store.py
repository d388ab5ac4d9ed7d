# /// failure
# planted = "the file of a FileStore is left from the run before"
# expect = "stale_filestore"
# ranks = "any"
# layout = "files"
# limit = 60
# ///
import os
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = Path(os.environ["WORK"]) / "store"
dist.init_process_group("gloo", init_method=f"file://{store}.old", rank=rank, world_size=world)
dist.barrier()
if rank == 0:
    store.write_bytes(Path(f"{store}.old").read_bytes())
dist.barrier()
dist.destroy_process_group()
# The next run of the job finds the old file.
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=12))
