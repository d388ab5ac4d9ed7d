# /// pattern
# id = "fsdp2-wrap-transformer"
# title = "fully_shard on a transformer: blocks by class, embedding, norm and head"
# topics = ["wrapping", "reshard-after-forward"]
# follows = ["torch.distributed.fsdp.fully_shard"]
# departs = ""
# architecture = "transformer"
# form = "fsdp2"
# test = "test_fsdp2.py::test_wrap_transformer"
# processes = 2
# ///
"""Wrap a transformer: every block by its class, the embedding alone, last norm and head together, then the root."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_transformer(
    model: nn.Module,
    mesh: DeviceMesh,
    block: type[nn.Module],  # for example LlamaDecoderLayer: the class that the model repeats
    embedding: nn.Module,
    norm: nn.Module,
    head: nn.Module,
) -> nn.Module:
    # By class, not by name: it finds the blocks of encoder and decoder alike. The list is made before the first call,
    # since fully_shard replaces the class of each module by a subclass of it.
    for module in [module for module in model.modules() if isinstance(module, block)]:
        fully_shard(module, mesh=mesh)

    # With a large vocabulary these are the largest tensors. In groups of their own they are not gathered all at once,
    # as they would be in the root's group. If embedding and head share a tensor, they need one group instead.
    fully_shard(embedding, mesh=mesh)
    # A list makes one group of several modules. The backward starts with it, so freeing it after forward would only
    # mean gathering it again at once.
    fully_shard([norm, head], mesh=mesh, reshard_after_forward=False)

    # Needed although it has nothing left to shard: without it every block would be a root of its own, kept gathered
    # after forward, and no all-gather would overlap with another block's computation.
    fully_shard(model, mesh=mesh)
    return model
