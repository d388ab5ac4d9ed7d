"""What ``fsdp2`` can be told."""

from __future__ import annotations

from ..backend.fields import one_of
from ..fields import Field
from ..words import several

GOALS = (
    "sharding", "memory", "hybrid", "compile", "checkpoint", "tensor-parallel", "pipeline", "low-precision", "frozen", "meta-init",
    "migrate",
)  # fmt: skip
USING = ("fsdp1", "fsdp2", "ddp", "none")
_GOAL_WORDS = {
    "per-parameter": "sharding", "per-parameter-sharding": "sharding", "hsdp": "hybrid", "torch.compile": "compile", "dcp": "checkpoint",
    "checkpoints": "checkpoint", "checkpointing": "checkpoint", "state-dict": "checkpoint", "tp": "tensor-parallel", "pp": "pipeline",
    "fp8": "low-precision", "float8": "low-precision", "lora": "frozen", "peft": "frozen", "meta": "meta-init", "migration": "migrate",
}  # fmt: skip
_USING_WORDS = {
    "fsdp": "fsdp1", "fullyshardeddataparallel": "fsdp1", "fully_shard": "fsdp2", "distributeddataparallel": "ddp", "nothing": "none",
}  # fmt: skip


def _goal(text: str) -> str:
    return several("goal", text, GOALS, _GOAL_WORDS)


def _using(text: str) -> str:
    return one_of("using", text, USING, _USING_WORDS)


GOAL = Field(
    "goal", _goal, f"what for, several separated by commas: {', '.join(GOALS)}", "What do you want FSDP2 for?",
    "What it does for that differs from release to release, and not all of it speaks for a change.", GOALS, "GOALS",
)  # fmt: skip
CURRENT = Field("using", _using, "what trains now: fsdp1, fsdp2, ddp, none", metavar="NAME")

FIELDS = (GOAL, CURRENT)
