# /// failure
# planted = "something listens on MASTER_PORT already"
# expect = "port_in_use"
# ranks = [0]
# layout = "files"
# ///
import os
import socket
from datetime import timedelta

import torch.distributed as dist

if os.environ["RANK"] == "0":
    other = socket.create_server(("", int(os.environ["MASTER_PORT"])))
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
