# /// failure
# planted = "a script without --local-rank under torch.distributed.launch"
# expect = "local_rank_argument"
# ranks = "any"
# layout = "launch"
# ///
import argparse

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
arguments = parser.parse_args()
dist.init_process_group("gloo")
