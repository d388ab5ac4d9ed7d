"""Shardguide: an FSDP colleague. Plans, configures and troubleshoots FSDP training in PyTorch, offline and with its sources.

>>> import shardguide
>>> answer = shardguide.backend(device="cuda", inter="infiniband", os="linux", torch="2.13")
>>> answer.decisions[0].choice
'nccl'
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself costs more than this module
if TYPE_CHECKING:
    from shardguide.guidance.errors import UnusableInput
    from shardguide.guidance.record import Guidance
    from shardguide.guidance.serialise import to_dict
    from shardguide.library import ask, backend, diagnose, explain, fsdp2, init, join, migrate, plan, review, tune

# Name -> module; loaded when it is first asked for, so that a command pays only for what it uses.
_HOMES = {
    "Guidance": "shardguide.guidance.record",
    "UnusableInput": "shardguide.guidance.errors",
    "to_dict": "shardguide.guidance.serialise",
    **dict.fromkeys(
        ("ask", "backend", "diagnose", "explain", "fsdp2", "init", "join", "migrate", "plan", "review", "tune"),
        "shardguide.library",
    ),
}

__all__ = [
    "Guidance",
    "UnusableInput",
    "ask",
    "backend",
    "diagnose",
    "explain",
    "fsdp2",
    "init",
    "join",
    "migrate",
    "plan",
    "review",
    "to_dict",
    "tune",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'shardguide' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
