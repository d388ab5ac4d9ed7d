# /// failure
# planted = "the rendezvous endpoint is not reachable"
# expect = "store_name_unresolved"
# ranks = []
# bare = true
# options = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "gpu-head-0.invalid:29400", "--rdzv-conf", "read_timeout=3", "--local-addr", "127.0.0.1"]
# limit = 90
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
