# /// failure
# planted = "torchrun waits for a second node that never comes"
# expect = "rdzv_timeout"
# ranks = []
# bare = true
# options = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-conf", "join_timeout=4", "--local-addr", "127.0.0.1"]
# limit = 60
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
