# /// pattern
# id = "fsdp2-cpu-offload"
# title = "FSDP2 with parameters, gradients and optimizer states on the CPU"
# topics = ["cpu-offload", "several-backends"]
# follows = ["torch.distributed.fsdp.CPUOffloadPolicy", "torch.distributed.init_process_group"]
# departs = ""
# form = "fsdp2"
# test = "test_fsdp2.py::test_cpu_offload"
# processes = 2
# [run]
# '"cpu:gloo,cuda:nccl"' = '"gloo"'
# '"cuda"' = '"cpu"'
# 'pin_memory=True' = 'pin_memory=False'
# [before."2.6"]
# "from torch.distributed.fsdp import" = "from torch.distributed._composable.fsdp import"
# ///
"""Keep the shards, their gradients and the optimizer's states in host memory; gather and compute on the GPU."""

from collections.abc import Iterable

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


def make_mesh() -> DeviceMesh:
    # Two backends: NCCL moves the gathered parameters. Gloo is for the shards, which are CPU tensors: the norm of
    # clip_grad_norm_ and full_tensor() are collectives over them, and NCCL alone refuses those.
    dist.init_process_group("cpu:gloo,cuda:nccl")
    return init_device_mesh("cuda", (dist.get_world_size(),))


def shard_offloaded(model: nn.Module, layers: Iterable[nn.Module], mesh: DeviceMesh) -> nn.Module:
    # Pinned memory makes the copies asynchronous. It is taken from the host for good: pin_memory=False if short of it.
    policy = CPUOffloadPolicy(pin_memory=True)
    for layer in layers:
        fully_shard(layer, mesh=mesh, offload_policy=policy)
    fully_shard(model, mesh=mesh, offload_policy=policy)
    # No model.to("cuda") from here on: the shards must stay on the CPU, or the first forward raises. The inputs are
    # moved to the GPU by FSDP, as are the gathered parameters.
    return model


# The optimizer, made after this, has CPU tensors, and steps on the CPU.
