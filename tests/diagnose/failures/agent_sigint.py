# /// failure
# planted = "Ctrl-C: SIGINT to the agent"
# expect = "stopped_by_user"
# ranks = []
# signal = { name = "SIGINT", after = 4 }
# ///
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(600):
    loss = torch.ones(4)
    dist.all_reduce(loss)
    if dist.get_rank() == 0 and step % 5 == 0:
        print(f"step {step}")
    time.sleep(0.2)
