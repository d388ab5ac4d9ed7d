"""Hardware reports (``--from``) as facts of the fields: what a file says, in the words that a flag would use."""

from __future__ import annotations

from shardguide.guidance.record import Question
from shardguide.readers.environment import Merged, merge, read_file

from .gather import FileFact

# A file's accelerator settings that are the same thing as a field.
_SAME = {"gpus": "gpus", "nodes": "nodes", "gpu": "gpu", "intra": "intra", "torch": "torch"}
_DEVICES = {"cuda": "cuda", "rocm": "rocm", "xpu": "xpu"}


def hardware_facts(files: tuple[str, ...]) -> tuple[dict[str, FileFact], tuple[Question, ...], tuple[str, ...]]:
    """Facts by field name, questions where files contradict each other, and notes. Raises UnusableInput."""
    merged = merge([part for path in files for part in read_file(path)])
    facts: dict[str, FileFact] = {}
    for key, name in _SAME.items():
        if key in merged.values:
            facts[name] = FileFact(merged.values[key].value, merged.values[key].source)
    memory = merged.values.get("gpu_memory_mib")
    partitions = merged.values.get("mig_memory_mib")
    if partitions and not merged.mixed:
        facts["gpu_memory"] = FileFact(f"{min(partitions.value)}MiB", partitions.source)
        facts.pop("gpu", None)
    elif memory:
        facts["gpu_memory"] = FileFact(f"{memory.value}MiB", memory.source)
    build = merged.values.get("torch_build")
    if build and build.value in _DEVICES:
        facts["device"] = FileFact(_DEVICES[build.value], build.source)
    per_node, nodes, gpus = (merged.values.get(key) for key in ("gpus_per_node", "nodes", "gpus"))
    if per_node and nodes and not gpus:
        facts["gpus"] = FileFact(per_node.value * nodes.value, per_node.source)
    if per_node and gpus and not nodes and gpus.value % per_node.value == 0:
        facts["nodes"] = FileFact(gpus.value // per_node.value, per_node.source)
    if per_node:
        facts["gpus_per_node"] = FileFact(per_node.value, per_node.source)
    questions = tuple(
        Question(_id(item.id), item.sentence, "The plan would be made for one of them; leave the wrong file out or state the value.",
                 (str(item.first.value), str(item.second.value)))
        for item in merged.contradictions
    )  # fmt: skip
    return facts, questions, (*merged.notes, *_notes(merged))


def _id(key: str) -> str:
    """The field that a contradiction is about."""
    return {"gpu_memory_mib": "gpu_memory"}.get(key, key)


def _notes(merged: Merged) -> tuple[str, ...]:
    """Mixed GPUs and partitions, and a build that does not fit the device."""
    out = []
    if merged.mixed:
        kinds = ", ".join(
            f"{count} × {name or 'GPU'}{f' with {mib} MiB' if mib else ''}" for name, mib, count in merged.models
        )
        out.append(
            f"The GPUs of a host differ ({kinds}): fully_shard gives every rank the same padded shards, so the plan holds the shards "
            "against the smallest."
        )
    if "mig_memory_mib" in merged.values:
        out.append("MIG is on: each process sees one partition, and the plan holds the shards against the smallest.")
    build = merged.values.get("torch_build")
    if build and build.value == "cpu" and "gpu" in merged.values:
        out.append(
            f"The installed PyTorch is a CPU build ({build.source.removeprefix('file:')}) on a host with GPUs: it cannot use them."
        )
    return tuple(out)
