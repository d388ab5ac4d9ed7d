# /// pattern
# id = "fsdp1-shard"
# title = "FSDP1: wrap each transformer layer, and train"
# topics = ["fsdp1-wrapping", "fsdp1-flat-parameters", "wrapping", "optimizer"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel", "https://docs.pytorch.org/tutorials/intermediate/FSDP_advanced_tutorial.html"]
# departs = "use_orig_params=True, which the tutorial lacks: parameter groups, frozen parameters and torch.compile need it."
# architecture = "transformer"
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_shard"
# processes = 2
# not_run = ""
# [run]
# "torch.cuda.current_device()" = 'torch.device("cpu")'
# ///
import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def shard(model, layer_class):
    # One flat parameter per layer, one for what is left. Without a policy the whole model would be one: all of it would be
    # gathered at once, and nothing could overlap.
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layer_class})
    return FSDP(
        model,
        auto_wrap_policy=policy,
        device_id=torch.cuda.current_device(),  # a model on the CPU is moved there layer by layer; set the device first
        use_orig_params=True,  # the optimizer sees the parameters' own names (shards of them), not flat ones
    )


def step(model, optimizer, inputs, targets, loss_fn):
    """``optimizer`` was built from ``model.parameters()`` AFTER ``shard``; every rank has a batch of its own."""
    loss = loss_fn(model(inputs), targets)
    loss.backward()  # gradients are averaged over the ranks, then each rank keeps its shard
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()  # of this rank's batch: average it over the ranks before comparing or logging
