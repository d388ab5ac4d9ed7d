# /// failure
# planted = "the file of a FileStore is left from the run before"
# expect = "stale_filestore"
# ranks = "any"
# layout = "files"
# limit = 25
# again = 8
# ///
import multiprocessing
import os
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = Path(os.environ["WORK"]) / "store"


def run_before():
    dist.init_process_group("gloo", init_method=f"file://{store}.old", rank=rank, world_size=world)
    dist.barrier()
    if rank == 0:  # a run that is killed leaves its file
        store.write_bytes(Path(f"{store}.old").read_bytes())
    dist.barrier()


before = multiprocessing.get_context("fork").Process(target=run_before)
before.start()
before.join()
time.sleep(2 * rank)  # ranks never start at the same moment
limit = timedelta(seconds=12)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=limit)
