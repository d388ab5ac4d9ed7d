# /// pattern
# id = "tp-loss-parallel"
# title = "Cross-entropy without gathering the logits"
# topics = ["tensor-parallel"]
# follows = ["torch.distributed.tensor.parallel.loss_parallel", "https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html"]
# departs = ""
# architecture = "transformer"
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_tp_loss_parallel"
# processes = 2
# not_run = ""
# own = ["cross_entropy"]
# [before."2.5"]
# "from torch.distributed.tensor import" = "from torch.distributed._tensor import"
# ///
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


def split_head(model, tp_mesh):
    # use_local_output=False leaves the logits a DTensor: each rank has its part of the vocabulary, and batch x sequence x
    # vocabulary, often the largest activation, is never gathered.
    head = ColwiseParallel(input_layouts=Replicate(), output_layouts=Shard(-1), use_local_output=False)
    return parallelize_module(model, tp_mesh, {"head": head})


def step(model, optimizer, ids, targets):
    # targets are plain tensors here, the same on all ranks of the mesh. backward belongs into the context as well.
    with loss_parallel():
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.full_tensor()  # a DTensor too, already the same on every rank
