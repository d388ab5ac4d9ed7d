# /// pattern
# id = "tp-transformer-block"
# title = "Tensor and sequence parallelism for a transformer"
# topics = ["tensor-parallel", "dtensor"]
# follows = ["torch.distributed.tensor.parallel.SequenceParallel", "https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html"]
# departs = "The attention's forward derives its number of heads from the width it gets, so that nobody has to change n_heads after parallelize_module."
# architecture = "transformer"
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_tp_transformer_block"
# processes = 2
# not_run = ""
# [before."2.5"]
# "from torch.distributed.tensor import" = "from torch.distributed._tensor import"
# ///
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def split(model, tp_mesh):
    # Between the blocks each rank has a part of the sequence (dimension 1 of batch, sequence, width): norms, dropout and
    # residuals are not computed twice, and their activations are not stored twice.
    outside = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, tp_mesh, outside)
    # Attention and MLP see the whole sequence and a part of the heads or of the hidden width: gathered before, and after
    # the rowwise layer added up and split again (output_layouts=Shard(1): a reduce-scatter instead of the all-reduce).
    whole_sequence = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    inside = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(**whole_sequence),
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=Shard(1)),
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(**whole_sequence),
        "mlp.gate": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for layer in model.layers:
        parallelize_module(layer, tp_mesh, inside)
    # q, k and v return plain tensors with a part of the width. In the attention's forward use view(b, s, -1, head_dim), not
    # n_heads; heads AND key-value heads must be divisible by the size of the mesh, the sequence length too.
    return model
