# /// pattern
# id = "ddp-comm-hook"
# title = "Gradients reduced in half precision: a DDP communication hook"
# topics = ["ddp-comm-hooks"]
# follows = ["torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook", "https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_compressed_gradients_are_close_and_the_hook_runs"
# processes = 2
# [run]
# 'default_hooks.bf16_compress_hook' = 'default_hooks.fp16_compress_hook'
# ///
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks


def compress(model, process_group=None):
    """Halve what a float32 DDP model sends for its gradients; parameters and optimizer stay float32."""
    # Once, before the first backward, and the same on every rank. The hook gets whole buckets, casts them, divides by
    # the world size, reduces, and casts back: the sum over the ranks is made in bf16, with its 8 bits of precision.
    # bf16 has float32's range, so it needs no loss scaling; it wants NCCL 2.10 or newer and raises TypeError without.
    # default_hooks.fp16_compress_hook runs on Gloo as well, but a gradient above 65504 becomes inf in it.
    model.register_comm_hook(state=process_group, hook=default_hooks.bf16_compress_hook)
    # A hook takes the place of DDP's own division: Join's divide_by_initial_world_size=False has no effect with it.
    return model
