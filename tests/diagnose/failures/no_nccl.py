# /// failure
# planted = "backend nccl in a PyTorch without CUDA"
# expect = "backend_not_built"
# ranks = "any"
# ///
import torch.distributed as dist

dist.init_process_group("nccl")  # planted
