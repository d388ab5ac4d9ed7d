"""Questions that the answer under way itself answers: how it is started, what memory is left. Nothing is added to its numbers."""

from __future__ import annotations

import re

from shardguide.frontends.render.blocks import Block, Code, Heading, Items, Text
from shardguide.frontends.render.numbers import size
from shardguide.guidance.hints import Any
from shardguide.workflows.intake import cues

_SNIPPETS = (
    (r"\b(?:slurm|sbatch|srun)\b", "sbatch"),
    (r"\b(?:kubernetes|k8s|kubeflow|trainjob)\b", "kubernetes"),
    (r"\bmeasur\w+ (?:script|code|snippet)\b|\b(?:how|what) (?:do|can|should|to) (?:i |we )?measure\b", "measure"),
)
_START = re.compile(
    r"\b(?:launch(?:er)?|start|run|torchrun|sbatch|slurm|kubernetes|k8s)\b.{0,20}\b(?:command|line|script|job)\b|"
    r"\bcommand (?:to|for|that|line)\b|\bhow (?:do|can|would|should|to) (?:i |we )?(?:now |then |actually )?(?:launch|start|run)\b|"
    r"^(?:please )?(?:show|give|print)(?: me)?(?: the)? (?:launch\w*|torchrun|start\w*|sbatch|slurm\w*)\b|"
    r"^(?:and |with |for |on )+(?:slurm|kubernetes|k8s)\b",
    re.IGNORECASE,
)
_LEFT = re.compile(
    r"\b(?:memory|gib|gb|vram|room|head ?room|space|much|anything)\b.{0,30}\b(?:left|remain\w*|free|spare|over)\b|"
    r"\b(?:room|space|memory|enough|fits?|left)\b.{0,40}\b(?:activations?|seq\w*(?: ?-?len\w*)?|context|tokens?|batch\w*)\b|"
    r"\b(?:activations?|seq\w*(?: ?-?len\w*)?|context|tokens?|batch\w*)\b.{0,40}\b(?:fits?|enough|room|oom|memory)\b|"
    r"\b(?:is|will|does|would|do|can) (?:that|this|it|all of it|the model|they) (?:be )?(?:really |all )?(?:enough|fit)\b|"
    r"\b(?:will|would|does|do) (?:it|this|that|i|we) (?:run out of memory|oom)\b|"
    r"\bhow (?:much|big).{0,20}\b(?:memory|gib|per (?:gpu|rank))\b|"
    r"\b(?:largest|max\w*|biggest) (?:batch|micro|seq|context)\w*",
    re.IGNORECASE,
)


def blocks(record: dict[str, Any], line: str) -> list[Block]:
    """The part of a plan that answers a line; empty where it is about something else."""
    if record["workflow"] != "plan" or not record.get("decisions") or "\n" in line or len(line) > 200:
        return []
    have = {one["id"]: one for one in record["snippets"]}
    if _START.search(line):
        wanted = next((name for words, name in _SNIPPETS if re.search(words, line, re.IGNORECASE)), "torchrun")
        return _start(record, have, wanted)
    for words, name in _SNIPPETS[2:]:
        if re.search(words, line, re.IGNORECASE) and name in have:
            return [Heading(have[name]["title"]), Code(have[name]["language"], have[name]["code"])]
    if _LEFT.search(line):
        return _memory(record, "measure" in have)
    return [Text(one) for one in cues.notes("plan", line)]


def _start(record: dict[str, Any], have: dict[str, Any], wanted: str) -> list[Block]:
    found = have.get(wanted)
    if found is None:
        launch = next((one["choice"] for one in record["decisions"] if one["id"] == "launch"), "")
        return [Heading("Launch"), Code("bash", launch)] if launch else []
    others = [name for name in ("torchrun", "sbatch", "kubernetes") if name in have and name != wanted]
    return [
        Heading(found["title"]),
        Code(found["language"], found["code"]),
        *([Text(f"Other ways: {', '.join(f'show {one}' for one in others)}.")] if others else []),
    ]


def _memory(record: dict[str, Any], measures: bool) -> list[Block]:
    check = next((one for one in record["checks"] if one["id"] == "memory"), None)
    ranks = (record.get("accounting") or {}).get("per_rank") or []
    total = (record.get("hardware") or {}).get("memory_bytes") or 0
    rows = [check["evidence"]] if check else []
    largest = max((one.get("device_bytes") or 0 for one in ranks), default=0)
    if largest and total > largest:
        rows.append(
            f"Left of the {size(total)} of one GPU, beside what stays there: {size(total - largest)} ({total - largest:,} bytes). "
            "Gathered parameters, activations, buffers of NCCL and what the allocator cannot use are taken from it."
        )
    rows.append(
        "What batch and sequence length take of it is measured, never estimated: it depends on kernels and on recomputation."
    )
    if measures:
        rows.append(
            "show measure prints the code that measures it; measured = FILE hands its output back to this plan."
        )
    return [Heading("Memory"), Items(tuple(rows))]
