# /// pattern
# id = "tp-clip"
# title = "Clip gradients whose parameters live on different meshes"
# topics = ["gradient-clipping", "tensor-parallel"]
# follows = ["torch.nn.utils.get_total_norm", "torch.nn.utils.clip_grads_with_norm_"]
# departs = "The functions expect all tensors on one mesh; here the norm is taken mesh by mesh and put together."
# architecture = ""
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_tp_clip"
# processes = 4
# not_run = ""
# ///
import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm


def clip(model, max_norm):
    # With FSDP and tensor parallelism, a parameter in the tensor-parallel plan is on the 2-D mesh, the others (norms, router)
    # on the data-parallel one. clip_grad_norm_ over all of them stacks DTensors of two meshes, and fails.
    by_mesh = {}
    for parameter in model.parameters():
        if parameter.grad is not None:
            by_mesh.setdefault(parameter.grad.device_mesh, []).append(parameter)
    # full_tensor() adds up over the ranks of the group's own mesh: the norm of all elements, each counted once.
    norms = [get_total_norm([p.grad for p in group]).full_tensor() for group in by_mesh.values()]
    total = torch.linalg.vector_norm(torch.stack(norms))
    for group in by_mesh.values():
        clip_grads_with_norm_(group, max_norm, total)  # the same factor for all, or the gradient would change direction
    return total
