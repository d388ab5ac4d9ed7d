# /// failure
# planted = "init_process_group is called twice"
# expect = "init_twice"
# ranks = "any"
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
dist.init_process_group("gloo")  # planted
