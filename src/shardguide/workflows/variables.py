"""Environment variables that are no part of PyTorch: where they are described."""

from __future__ import annotations


def elsewhere(asked: str) -> str:
    """The page on variables that NCCL or Gloo reads themselves; "" for any other name."""
    library, _, rest = asked.partition("_")
    if library not in ("NCCL", "GLOO") or not rest.replace("_", "").isalnum() or not asked.isupper():
        return ""
    if rest.startswith(("SOCKET_IFNAME", "IB_HCA")):
        topic = "network-interfaces"
    elif library == "GLOO":
        topic = "gloo"
    else:
        topic = "nccl-debugging" if "DEBUG" in rest else "nccl-tuning"
    name = {"NCCL": "NCCL", "GLOO": "Gloo"}[library]
    return f". A variable of {name}'s own is no part of PyTorch's API: on those see explain {topic}"
