"""The code and the launch files that an answer shows.

``render_fsdp2``, ``render_fsdp1`` and ``render_ddp`` give training code for one model, ``render_launch`` the file that starts it,
``measure`` and ``manifest`` the two snippets that bring facts back. All are plain string assembly, well under a
millisecond each; ``Snippet.verified`` comes from a record that the tests prove (see record.py).
"""

from __future__ import annotations

from shardguide.guidance.record import Snippet

from .spec import LaunchSpec, TrainingSpec

__all__ = [
    "LaunchSpec",
    "TrainingSpec",
    "manifest",
    "measure",
    "render_ddp",
    "render_fsdp1",
    "render_fsdp2",
    "render_launch",
]


def render_fsdp2(spec: TrainingSpec) -> Snippet:
    """Training code with ``fully_shard``; UnusableInput for what the release does not have (nothing before 2.3)."""
    from .fsdp2 import render

    return render(spec)


def render_fsdp1(spec: TrainingSpec) -> Snippet:
    """The same with ``FullyShardedDataParallel``; UnusableInput for what FSDP1 cannot express."""
    from .fsdp1 import render

    return render(spec)


def render_ddp(spec: TrainingSpec) -> Snippet:
    """The same without sharding, with ``DistributedDataParallel``."""
    from .ddp import render

    return render(spec)


def render_launch(kind: str, spec: LaunchSpec) -> Snippet:
    """A launch file: torchrun, sbatch, kubernetes, kubernetes-v1, accelerate, torchtitan or torchtitan-toml."""
    from .launch import render

    return render(kind, spec)


def measure(spec: TrainingSpec) -> Snippet:
    """Code that measures peak memory and step times on every rank, as the JSON that ``--measured`` reads."""
    from .instruments import measure

    return measure(spec)


def manifest(release: str = "2.13") -> Snippet:
    """Code that writes a model's shape manifest from the meta device."""
    from .instruments import manifest

    return manifest(release)
