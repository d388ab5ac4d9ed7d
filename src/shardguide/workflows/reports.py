"""Hardware reports (``--from``) as facts of the fields: what a file says, in the words that a flag would use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.record import Question
from shardguide.readers.environment import Contradiction, Found, Merged, merge, read_file

from . import fields
from .gather import FileFact, agree, ask

# A file's settings that are the same thing as a field.
_SAME = {
    "gpus": "gpus",
    "nodes": "nodes",
    "gpu": "gpu",
    "gpu_memory_mib": "gpu_memory",
    "intra": "intra",
    "torch": "torch",
}
_DEVICES = ("cuda", "rocm", "xpu")
_PROFILE = re.compile(r"(\d{1,3})gb")  # "1c.3g.71gb", "1g.10gb+me"

Facts = dict[str, FileFact]


def hardware_facts(
    files: tuple[str, ...], given: Mapping[str, Any], remembered: Mapping[str, Any]
) -> tuple[Facts, tuple[Question, ...], tuple[str, ...]]:
    """Facts by field name, questions where files contradict each other, and notes. Raises UnusableInput.

    Besides fields: ``gpus_per_node`` (GPUs of one host), ``mig`` (MIG is on) and ``mixed`` (names of GPUs that differ).
    Where files contradict each other, an answer that was given or remembered decides; what the plan doesn't depend on
    (driver, operating system) is noted.
    """
    merged = merge([part for path in files for part in read_file(path)])
    facts = {name: _fact(key, merged.values[key]) for key, name in _SAME.items() if key in merged.values}
    notes = [*merged.notes, *_mixed(merged, facts)]
    known = {**remembered, **given}
    questions: list[Question] = []
    for key in dict.fromkeys(item.id for item in merged.contradictions):
        items = [item for item in merged.contradictions if item.id == key]
        if key in _SAME:
            questions += _settle(key, items, facts, known, given)
        elif key not in ("gpus_per_node", "torch_build"):
            notes.append(_noted(items[0]))
    notes += _partitions(merged, facts, known)
    if "mig" not in facts:
        questions += _per_host(merged, facts, known)
    _accelerate(merged, facts)
    more, asked = _build(merged, facts, given, remembered)
    notes += _other_device(merged)
    return facts, (*questions, *asked), (*notes, *more)


def _fact(key: str, found: Found) -> FileFact:
    return FileFact(f"{found.value}MiB" if key == "gpu_memory_mib" else found.value, found.source)


def _candidates(key: str, items: list[Contradiction]) -> list[FileFact]:
    """What the files say, each value once."""
    found = [_fact(key, one) for item in items for one in (item.first, item.second)]
    return list({str(one.value): one for one in found}.values())


def _agrees(name: str, value: Any, known: Any) -> bool:
    """Whether an answer as given or remembered is what a file says; an unreadable answer is refused where it is used."""
    try:
        return agree(name, value, {one.name: one.parse for one in fields.PLAN}[name](str(known)))
    except UnusableInput:
        return False


def _settle(
    key: str, items: list[Contradiction], facts: Facts, known: Mapping[str, Any], given: Mapping[str, Any]
) -> list[Question]:
    """Files that contradict each other on a field: the answer decides, else it is asked."""
    name = _SAME[key]
    candidates = _candidates(key, items)
    if name in known:
        for candidate in candidates:
            if _agrees(name, candidate.value, known[name]):
                facts[name] = candidate
                if name == "gpu":
                    _leave_out([one for one in candidates if one is not candidate], candidate, facts)
                return []
    if name in given:
        return []  # neither file agrees with what is said: asked where answers and files meet
    why = (
        f"The plan would be made for one of them; leave the wrong file out or state it with --{name.replace('_', '-')}."
    )
    return [
        Question(
            name, f"{_plain(items[0].sentence)}: which one is right?", why, tuple(str(one.value) for one in candidates)
        )
    ]


def _file(where: str) -> str:
    return where.partition(", line ")[0]


def _leave_out(others: list[FileFact], chosen: FileFact, facts: Facts) -> None:
    """Memory and link from the report of a GPU that is not the one in use say nothing about this one."""
    rejected = {_file(one.where) for one in others} - {_file(chosen.where)}
    for name in ("gpu_memory", "intra"):
        if name in facts and _file(facts[name].where) in rejected:
            del facts[name]


def _plain(sentence: str) -> str:
    """A reader's sentence without its closing question."""
    return sentence.removesuffix(": which one is right?").replace("(file:", "(")


def _noted(item: Contradiction) -> str:
    return f"{_plain(item.sentence)}. The plan does not depend on it."


def _per_host(merged: Merged, facts: Facts, known: Mapping[str, Any]) -> list[Question]:
    """GPUs of one host, and the totals that follow; where reports disagree, the totals that were stated decide."""
    per_node = merged.values.get("gpus_per_node")
    if per_node is None:
        return []
    items = [item for item in merged.contradictions if item.id == "gpus_per_node"]
    hosts = [item for item in items if item.first.source == per_node.source]
    shown = _candidates("gpus_per_node", hosts) or [_fact("gpus_per_node", per_node)]
    both = [_count(known, name) or (facts[name].value if name in facts else 0) for name in ("gpus", "nodes")]
    if len(shown) > 1 and all(both):
        shown = [one for one in shown if one.value * both[1] == both[0]] or shown
    if len(shown) > 1 and not all(both):
        field = fields.NODES if both[0] else fields.GPUS
        return [ask(field)._replace(ask=f"{_plain(hosts[0].sentence)}. {field.ask}")]
    fact = facts["gpus_per_node"] = shown[0]
    if "nodes" in facts and "gpus" not in facts:
        facts["gpus"] = FileFact(fact.value * facts["nodes"].value, fact.where)
    elif "gpus" in facts and "nodes" not in facts and facts["gpus"].value % fact.value == 0:
        facts["nodes"] = FileFact(facts["gpus"].value // fact.value, fact.where)
    return []


def _count(known: Mapping[str, Any], name: str) -> int:
    text = str(known.get(name, "")).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _mixed(merged: Merged, facts: Facts) -> list[str]:
    """GPUs of a host that differ: all their names, and the least memory (which is what ``gpu_memory_mib`` has)."""
    if not merged.mixed:
        return []
    names = tuple(dict.fromkeys(name for name, _, _ in merged.models if name))
    if len(names) > 1:
        facts.pop("gpu", None)
        facts["mixed"] = FileFact(
            names, merged.values["gpus_per_node"].source if "gpus_per_node" in merged.values else "file"
        )
    kinds = ", ".join(
        f"{count} × {name or 'GPU'}{f' with {mib} MiB' if mib else ''}" for name, mib, count in merged.models
    )
    return [
        f"The GPUs of a host differ ({kinds}): fully_shard gives every rank the same padded shards, so the plan holds the shards "
        "against the smallest."
    ]


def _partitions(merged: Merged, facts: Facts, known: Mapping[str, Any]) -> list[str]:
    """MIG: each process sees one partition, so the memory is a partition's and the GPUs of a host say nothing about ranks."""
    on = merged.values.get("mig")
    if on is None:
        return []
    facts["mig"] = FileFact(True, on.source)
    facts.pop("gpu_memory", None)
    sizes, profiles = merged.values.get("mig_memory_mib"), merged.values.get("mig_profiles")
    listed: list[str] = []
    if sizes:
        listed = [f"{mib}MiB" for mib in sorted(sizes.value)]
    elif profiles:
        gigabytes = {int(match[1]) for match in map(_PROFILE.search, profiles.value) if match}
        listed = [f"{gb}GB" for gb in sorted(gigabytes)]
    source = (sizes or profiles or on).source
    where = on.source.removeprefix("file:")
    apart = "NVLink does not join partitions; --gpus counts the partitions that are used."
    if not listed:
        return [f"MIG is on ({where}) and no partition is listed. {apart}"]
    own = [one for one in listed if "gpu_memory" in known and _agrees("gpu_memory", one, known["gpu_memory"])]
    chosen = (own or listed)[0]
    facts["gpu_memory"] = FileFact(chosen, source)
    kinds = f" ({', '.join(profiles.value)})" if profiles else ""
    smallest = f", the smallest of {', '.join(listed)}" if len(listed) > 1 and not own else ""
    return [
        f"MIG is on ({where}): a process sees one partition{kinds}, and the plan holds the shards against {chosen}{smallest}. {apart}"
    ]


def accelerate_device(distributed_type: str, use_cpu: bool) -> str:
    """The kind of device that accelerate's settings name, "" where they leave it open: MULTI_GPU is CUDA or ROCm."""
    if use_cpu:
        return "cpu"
    return {"MULTI_XPU": "xpu", "MULTI_CPU": "cpu"}.get(distributed_type, "")


# Values of accelerate's DistributedType (accelerate/utils/dataclasses.py, 1.15) for devices that no plan is made for.
_UNPLANNED = ("MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU", "MULTI_NEURON", "XLA")


def _accelerate(merged: Merged, facts: Facts) -> None:
    """The kind of device that an accelerate configuration names."""
    chosen, use_cpu = merged.values.get("distributed_type"), merged.values.get("use_cpu")
    on_cpu = use_cpu is not None and use_cpu.value is True
    device = accelerate_device(str(chosen.value) if chosen else "", on_cpu)
    source = use_cpu.source if use_cpu is not None and on_cpu else chosen.source if chosen else ""
    if device:
        facts["device"] = FileFact(device, source)


def _other_device(merged: Merged) -> list[str]:
    chosen = merged.values.get("distributed_type")
    if chosen is None or chosen.value not in _UNPLANNED:
        return []
    where = chosen.source.removeprefix("file:")
    return [
        f"distributed_type {chosen.value} ({where}) is for a device that no plan is made for: this one is for GPUs."
    ]


def _build(
    merged: Merged, facts: Facts, given: Mapping[str, Any], remembered: Mapping[str, Any]
) -> tuple[list[str], list[Question]]:
    """The accelerator that PyTorch was built for: the kind of device where no GPU is named, else compared with it."""
    build = merged.values.get("torch_build")
    if build is None:
        return [], []
    from .hardware import kind

    gpu = str(given.get("gpu") or (facts["gpu"].value if "gpu" in facts else remembered.get("gpu", "")))
    read = facts["device"].value if "device" in facts else ""
    device = str(given.get("device") or (kind(gpu) if gpu else "") or read or remembered.get("device", ""))
    builds = [build, *(item.second for item in merged.contradictions if item.id == "torch_build")]
    where = {str(one.value): one.source.removeprefix("file:") for one in reversed(builds)}
    notes = []
    if "cpu" in where and ("gpu" in merged.values or merged.mixed):
        notes.append(f"The installed PyTorch is a CPU build ({where['cpu']}) on a host with GPUs: it cannot use them.")
    usable = [name for name in where if name in _DEVICES]
    if device:
        notes += [
            f"The PyTorch of {where[name]} is a {name} build, and {gpu or 'the device'} is a {device} device: it cannot use it."
            for name in usable
            if device not in (name, "cpu")
        ]
    elif len(usable) > 1:
        says = ", ".join(f"{where[name]}: {name}" for name in usable)
        ask_ = f"The reports are of PyTorch builds for different devices ({says}): which device is trained on?"
        return notes, [Question("device", ask_, "Backend and mixed precision depend on it.", tuple(usable))]
    elif usable:
        facts["device"] = FileFact(usable[0], next(one.source for one in builds if one.value == usable[0]))
    return notes, []
