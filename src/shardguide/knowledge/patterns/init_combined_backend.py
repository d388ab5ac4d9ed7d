# /// pattern
# id = "init-combined-backend"
# title = "One group with Gloo for CPU tensors and NCCL for CUDA tensors"
# topics = ["several-backends", "choosing-a-backend", "process-group-setup"]
# follows = ["torch.distributed.init_process_group", "torch.distributed.all_reduce"]
# departs = ""
# form = "c10d"
# test = "test_init_forms.py::test_combined_backends_serve_cpu_tensors"
# processes = 2
# [run]
# '"cpu:gloo,cuda:nccl"' = '"cpu:gloo"'
# ///
import torch
import torch.distributed as dist


def start():
    # The device of a tensor decides which backend moves it. Wanted with CPU offload (gradients and parameters lie on
    # the CPU), asynchronous checkpoints, and counters that should not wait for the GPU.
    dist.init_process_group("cpu:gloo,cuda:nccl")


def mean_loss(loss, samples):
    """Mean over all samples of all ranks. ``loss``: mean of this rank's samples, on the GPU; ``samples``: their number."""
    # Over Gloo: an int of Python becomes a CPU tensor, no GPU has to be asked for it.
    count = torch.tensor([samples])
    dist.all_reduce(count)
    # Over NCCL: the tensor lies on the GPU and stays there.
    total = loss.detach() * samples
    dist.all_reduce(total)
    return total / count.item()
