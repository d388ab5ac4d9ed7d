# /// pattern
# id = "ddp-compile"
# title = "torch.compile over DDP"
# topics = ["compile", "ddp"]
# follows = ["https://docs.pytorch.org/docs/stable/notes/ddp.html"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_compiled_loop_equals_one_process"
# processes = 2
# [run]
# 'device_ids=[device]' = 'device_ids=None'
# ///
import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, device, backend="inductor"):
    # Wrap first, compile then. Inside DDP the compiler breaks the graph where a bucket of gradients is full, so that its
    # all-reduce starts while the rest of backward still computes; in one graph all of them would wait for the end.
    # The model must be of a class of your own: a bare nn.Sequential is left uncompiled in this order, without a word.
    model = DDP(model.to(device), device_ids=[device])
    # Returns a new module with the same parameters: train with it, save model.module of the DDP one (its names have
    # neither "_orig_mod." nor "module." in front).
    return model, torch.compile(model, backend=backend)
