# /// pattern
# id = "ddp-checkpoint"
# title = "Save and load a DDP model"
# topics = ["ddp", "load-full-checkpoint"]
# follows = ["https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints", "torch.nn.parallel.DistributedDataParallel"]
# departs = "The tutorial loads into the wrapper; here weights are loaded before wrapping, under the model's own names."
# form = "ddp"
# test = "test_ddp.py::test_checkpoint_resumes_where_it_stopped"
# processes = 2
# [run]
# 'device_ids=[device]' = 'device_ids=None'
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def save(path, model, optimizer):
    if dist.get_rank() == 0:  # all ranks hold the same numbers, one file is enough
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    dist.barrier()  # nobody reads before the file is complete


def resume(path, model, device, build_optimizer):
    """``model``: not wrapped yet. Every rank reads the file: the optimizer's states are not sent around by DDP."""
    # To the CPU: saved tensors remember the device that they came from, and all ranks would fill rank 0's GPU.
    # weights_only: tensors and plain containers, no pickled code from whoever wrote the file.
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(saved["model"])
    # If only the weights matter, rank 0 alone may load them: the constructor copies its parameters and buffers.
    model = DDP(model.to(device), device_ids=[device])
    optimizer = build_optimizer(model.parameters())
    optimizer.load_state_dict(saved["optimizer"])  # moves its states to where the parameters are
    return model, optimizer
