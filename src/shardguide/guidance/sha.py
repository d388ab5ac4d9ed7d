"""SHA-256 without OpenSSL: hashlib loads that library for every process, which costs more than all the digests of a plan.

CPython builds the algorithm in as well, under a name that changed in 3.12; its own random module takes it the same way.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # a Python that was built without them
        from hashlib import sha256

__all__ = ["sha256"]
