"""Mistakes whose errors PyTorch 2.13.0 really raises on two CPU processes over Gloo, each with the fix of its diagnosis.

Every case is a function of ``fixed``, named for a diagnosis: False makes the mistake, and the error or warning must be the one
that this diagnosis is about; True makes the same call as its fix says, which must not raise.
"""

from __future__ import annotations

from . import arguments, checkpoints, ddp, dtensor, fsdp, groups, numerics, plain  # noqa: F401 - they register their cases
from .common import CASES, outcome

__all__ = ["CASES", "outcome"]
