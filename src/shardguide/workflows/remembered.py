# ruff: noqa: PTH100
# (os.path as in the rest of the product: pathlib costs start-up time)
"""What the notebook remembers, held against what is stated now: a new cluster, GPU or model supersedes answers about the old."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import fields, hardware

if TYPE_CHECKING:
    from .evidence import Handed
    from .request import PlanRequest

# What was remembered about one thing says nothing any more once that thing is stated anew.
_DEPENDENTS = {
    "gpus": ("nodes", "tp", "shard_size"),
    "nodes": ("gpus", "tp", "shard_size"),
    "gpu": ("gpu_memory", "device", "intra"),
    "model": ("tp", "implementation"),
}


def still_true(request: PlanRequest, handed: Handed) -> dict[str, Any]:
    """The remembered answers, without those that belong to another cluster, GPU or model than the one stated now.

    Raises UnusableInput for an option that cannot be read.
    """
    parse = {field.name: field.parse for field in fields.PLAN}
    stated = {name: parse[name](str(value)) for name, value in request.given.items() if name in parse}
    files = {name: fact.value for name, fact in handed.facts.items() if name in parse and name not in stated}
    kept = keep({**files, **stated}, request.remembered)
    if not _reads("device", str(kept.get("device", "cpu"))):
        del kept["device"]  # of another workflow: backend knows mps, for which there is nothing to plan
    # One node has no network; the answer stays in the notebook, for it is not superseded.
    if str(stated.get("nodes", kept.get("nodes"))) == "1" or str(stated.get("gpus", kept.get("gpus"))) == "1":
        kept.pop("inter", None)
    return kept


def _reads(name: str, value: str) -> bool:
    """Whether a plan can read a remembered value."""
    field = next(one for one in fields.PLAN if one.name == name)
    try:
        field.parse(value)
    except UnusableInput:
        return False
    return True


def superseded(stated: Mapping[str, Any], remembered: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of remembered answers that what the user stated makes worthless: to be forgotten."""
    kept = keep(stated, remembered)
    return tuple(name for name in remembered if name not in kept and name not in stated)


def keep(stated: Mapping[str, Any], remembered: Mapping[str, Any]) -> dict[str, Any]:
    """``remembered`` without what contradicts ``stated``, or depends on something that is stated otherwise now."""
    kept = dict(remembered)
    for name, dependents in _DEPENDENTS.items():
        if name in stated and name in remembered and not _same(name, stated[name], remembered[name]):
            for dependent in dependents:
                kept.pop(dependent, None)
            if name == "model" and kept.get("param_dtype") == fields.AS_STORED:
                del kept["param_dtype"]
    _counts(stated, kept)
    _gpu(stated, kept)
    return kept


def _same(name: str, stated: Any, remembered: Any) -> bool:
    if name == "gpu":
        from shardguide.knowledge.hardware.table import find

        one, other = find(str(stated)), find(str(remembered))
        return str(stated) == str(remembered) or bool(one and [row.id for row in one] == [row.id for row in other])
    if name == "model":  # one file, however its path is spelled
        return os.path.abspath(str(stated)) == os.path.abspath(str(remembered))
    return str(stated) == str(remembered)


def _counts(stated: Mapping[str, Any], kept: dict[str, Any]) -> None:
    """Drops a remembered count that does not divide with what is stated."""
    for one, other in (("gpus", "nodes"), ("nodes", "gpus")):
        gpus, nodes = (_number(stated, kept, name) for name in ("gpus", "nodes"))
        if one in stated and other not in stated and gpus and nodes and gpus % nodes:
            kept.pop(other, None)
    gpus, nodes, tp = (_number(stated, kept, name) for name in ("gpus", "nodes", "tp"))
    if tp and gpus and "tp" not in stated and (gpus % tp or (nodes and gpus // nodes % tp)):
        kept.pop("tp", None)


def _number(stated: Mapping[str, Any], kept: Mapping[str, Any], name: str) -> int:
    text = str(stated.get(name, kept.get(name, "")))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _gpu(stated: Mapping[str, Any], kept: dict[str, Any]) -> None:
    """Drops what was remembered about another GPU: name, memory, device kind and link are of one."""

    def value(name: str) -> str:
        return str(stated.get(name, kept.get(name, "")))

    def drop(*names: str) -> None:
        for name in names:
            if name not in stated:
                kept.pop(name, None)

    if _another_unknown(stated, kept):
        drop("gpu", "device", "intra")
    if value("gpu") and value("gpu_memory") and not _true(hardware.agrees, value("gpu"), value("gpu_memory")):
        # The older of the two is not known; a size that no such GPU has was said after the name, which would have dropped it.
        drop(*(("gpu_memory",) if "gpu" in stated else ("gpu", "device", "intra")))
    kind = hardware.kind(value("gpu")) if value("gpu") else ""
    if kind and value("device") not in ("", kind):
        if "gpu" in stated:
            drop("device")
        elif value("device") != "cpu":  # with --device cpu the GPU is only left aside
            drop("gpu", "gpu_memory", "intra")
    if value("intra") and hardware.refused_link(value("intra"), value("gpu"), value("device")):
        drop(*(("gpu", "gpu_memory", "device") if "intra" in stated else ("intra",)))


def _another_unknown(stated: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Whether a memory is stated now that differs from the one remembered for a GPU that the table does not know.

    Where none was remembered, the statement answers the question about that GPU's memory.
    """
    if "gpu" in stated or "gpu" not in kept or "gpu_memory" not in stated or "gpu_memory" not in kept:
        return False
    from shardguide.knowledge.hardware.table import find

    from .gather import agree

    def same(one: str, other: str) -> bool:
        return agree("gpu_memory", one, other)

    if find(str(kept["gpu"]), every=True):
        return False
    return not _true(same, str(stated["gpu_memory"]), str(kept["gpu_memory"]))


def _true(test: Callable[[str, str], bool], *texts: str) -> bool:
    """The test's result; a remembered text that cannot be read is reported where it is used."""
    try:
        return test(*texts)
    except UnusableInput:
        return True
