# /// pattern
# id = "tp-mlp"
# title = "Tensor parallelism for a gated MLP"
# topics = ["tensor-parallel", "dtensor"]
# follows = ["torch.distributed.tensor.parallel.parallelize_module", "https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html"]
# departs = ""
# architecture = "transformer"
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_tp_mlp"
# processes = 2
# not_run = ""
# [before."2.5"]
# "from torch.distributed.tensor import" = "from torch.distributed._tensor import"
# ///
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def split(mlp, tp_mesh):
    """For a module whose forward is ``self.down(silu(self.gate(x)) * self.up(x))``."""
    # Colwise splits the outputs of gate and up, rowwise the inputs of down. What lies between works element by element,
    # so each rank computes its part of the hidden width alone; one all-reduce after `down` adds the parts up.
    columns = ColwiseParallel(input_layouts=Replicate(), output_layouts=Shard(-1))  # the defaults, written out
    rows = RowwiseParallel(input_layouts=Shard(-1), output_layouts=Replicate())
    # Every rank of the mesh must get the same x, a plain tensor, and gets the same result, a plain tensor. The parameters
    # become DTensors; their values are those of the mesh's first rank. Build the optimizer after this call.
    return parallelize_module(mlp, tp_mesh, {"gate": columns, "up": columns, "down": rows})
