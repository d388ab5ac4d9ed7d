# /// failure
# planted = "init_process_group is called twice"
# expect = "group_initialised_twice"
# ranks = "any"
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
dist.init_process_group("gloo")  # planted
