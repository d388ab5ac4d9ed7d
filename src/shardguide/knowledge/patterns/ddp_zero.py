# /// pattern
# id = "ddp-zero"
# title = "ZeroRedundancyOptimizer with DDP: optimizer states sharded over the ranks"
# topics = ["zero-redundancy-optimizer", "ddp", "when-not-fsdp"]
# follows = ["torch.distributed.optim.ZeroRedundancyOptimizer", "https://docs.pytorch.org/tutorials/recipes/zero_redundancy_optimizer.html"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_zero_equals_one_process_and_shards_the_states"
# processes = 2
# [run]
# 'device_ids=[device]' = 'device_ids=None'
# ///
import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def build(model, device, lr):
    model = DDP(model.to(device), device_ids=[device])
    # Whole parameters are dealt out to the ranks: each keeps Adam's two moments for its own ones, updates those, and
    # broadcasts them in step(). Weights and gradients stay complete on every rank; to shard those too, use FSDP.
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(),  # all of one dtype and dense
        optimizer_class=torch.optim.AdamW,  # the class: ZeRO makes an instance over this rank's share
        lr=lr,  # and further arguments of that class
    )
    return model, optimizer


def train(model, optimizer, batches, loss_of):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_of(model(inputs), targets).backward()
        optimizer.step()  # a collective: every rank must come here, in every step
