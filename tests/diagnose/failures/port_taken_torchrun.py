# /// failure
# planted = "another job has torchrun master port"
# expect = "port_in_use"
# ranks = []
# bare = true
# taken = true
# limit = 60
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
