# /// pattern
# id = "tp-fsdp"
# title = "Tensor parallelism within a node, FSDP across nodes"
# topics = ["tensor-parallel", "device-mesh", "wrapping"]
# follows = ["torch.distributed.fsdp.fully_shard", "https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html"]
# departs = ""
# architecture = "transformer"
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_tp_fsdp"
# processes = 4
# not_run = ""
# [run]
# '"cuda"' = '"cpu"'
# [before."2.6"]
# "from torch.distributed.fsdp import fully_shard" = "from torch.distributed._composable.fsdp import fully_shard"
# ///
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data.distributed import DistributedSampler


def build_mesh(tensor_parallel):
    # Tensor parallelism communicates within every layer and waits for it: the last dimension, whose ranks are neighbours.
    shape = (dist.get_world_size() // tensor_parallel, tensor_parallel)
    return init_device_mesh("cuda", shape, mesh_dim_names=("dp", "tp"))


def shard(model, mesh):
    plan = {"mlp.gate": ColwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}
    for layer in model.layers:
        # First the tensor-parallel split, then fully_shard over the other dimension: it shards the DTensors once more, and
        # gathers only this rank's tensor-parallel part for the computation. The other order is refused.
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return model


def sampler(dataset, mesh):
    # Ranks of one tensor-parallel group need the SAME batch: the place in "dp" selects it, never the global rank.
    dp = mesh["dp"]
    return DistributedSampler(dataset, num_replicas=dp.size(), rank=dp.get_local_rank())
