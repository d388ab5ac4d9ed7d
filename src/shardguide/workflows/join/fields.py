"""What ``join`` can be told about a training loop."""

from __future__ import annotations

from ..backend.fields import one_of
from ..fields import Field
from ..words import several

PARTS = ("ddp", "zero", "fsdp", "own")
_PART_WORDS = {
    "distributeddataparallel": "ddp", "zeroredundancyoptimizer": "zero", "zero-redundancy-optimizer": "zero", "zero1": "zero",
    "fsdp1": "fsdp", "fsdp2": "fsdp", "fully-shard": "fsdp", "fullyshardeddataparallel": "fsdp", "joinable": "own", "custom": "own",
}  # fmt: skip
_YES_NO = {"true": "yes", "on": "yes", "false": "no", "off": "no", "maybe": "unknown", "?": "unknown"}
_EXHAUSTED = {"continue": "drain", "train-on": "drain", "throw": "stop", "fail": "stop", "raise": "stop"}
_GROUPS = {"same": "one", "1": "one", "different": "several", "two": "several", "2": "several"}


def _with(text: str) -> str:
    return several("with", text, PARTS, _PART_WORDS)


def _uneven(text: str) -> str:
    return one_of("uneven", text, ("yes", "no", "unknown"), _YES_NO)


def _on_exhausted(text: str) -> str:
    return one_of("on-exhausted", text, ("drain", "stop"), _EXHAUSTED)


def _collectives(text: str) -> str:
    return one_of("collectives", text, ("yes", "no"), _YES_NO)


def _skew(text: str) -> str:
    return one_of("skew", text, ("small", "large"), {"few": "small", "many": "large"})


def _groups(text: str) -> str:
    return one_of("groups", text, ("one", "several"), _GROUPS)


WITH = Field(
    "with", _with, "what communicates in the loop, separated by commas: ddp, zero (ZeroRedundancyOptimizer), fsdp, own (your Joinables)",
    "What communicates in the training loop?",
    "Join takes what is Joinable: DistributedDataParallel, ZeroRedundancyOptimizer and classes of your own, but not FSDP.",
    ("ddp", "ddp,zero", "fsdp", "ddp,own"), "PARTS",
)  # fmt: skip
UNEVEN = Field(
    "uneven", _uneven, "whether ranks can get different numbers of batches: yes, no or unknown",
    "Can ranks get different numbers of batches?", "Where they never can, Join costs an all-reduce an iteration for nothing.",
    ("yes", "no", "unknown"), "WORD",
)  # fmt: skip
ON_EXHAUSTED = Field(
    "on_exhausted", _on_exhausted, "when the first rank runs out of batches: drain (the others train on) or stop (all stop)",
    "When the first rank runs out of batches, shall the others train on to their end (drain), or all stop (stop)?",
    "Training on uses every sample; stopping needs no shadowed collectives.", ("drain", "stop"), "WORD",
)  # fmt: skip
COLLECTIVES = Field(
    "collectives", _collectives, "whether other collectives are in the loop, such as SyncBatchNorm or an all_reduce of yours: yes or no",
    "Are there other collectives in the loop, such as SyncBatchNorm or an all_reduce of your own?",
    "Join shadows the collectives of its Joinables only; ranks would hang in any other.", ("yes", "no"), "WORD",
)  # fmt: skip
SKEW = Field(
    "skew", _skew, "how much the numbers of batches differ: small (default: the last few) or large", metavar="WORD"
)
GROUPS = Field(
    "groups", _groups, "whether what communicates uses one process group (default) or several", metavar="WORD",
)  # fmt: skip

FIELDS = (WITH, UNEVEN, ON_EXHAUSTED, COLLECTIVES, SKEW, GROUPS)
