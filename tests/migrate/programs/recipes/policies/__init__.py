from .checkpointing import apply_fsdp_checkpointing
from .precision import bfSixteen, fp32_policy
from .wrapping import fsdp_auto_wrap_policy, get_wrapper

__all__ = ["apply_fsdp_checkpointing", "bfSixteen", "fp32_policy", "fsdp_auto_wrap_policy", "get_wrapper"]
