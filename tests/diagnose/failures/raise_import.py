# /// failure
# planted = "a package is missing in the environment"
# expect = "module_missing_on_rank"
# ranks = "any"
# world = 3
# ///
import torch.distributed as dist

dist.init_process_group("gloo")
import fused_attention_kernels  # noqa: E402  # planted
