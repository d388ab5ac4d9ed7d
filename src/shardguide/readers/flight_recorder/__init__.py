"""Flight Recorder dumps, one file a rank: every version that PyTorch's releases have written, as pickle and as JSON."""

from .dump import Dump, Status, is_dump, read

__all__ = ["Dump", "Status", "is_dump", "read"]
