"""Current settings in configuration files: accelerate's YAML, a Trainer's JSON, and DeepSpeed's (said to be that)."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.readers.files import check_depth, parse_json

from .current import Call, Current, Setting

_MAX = 2000


def from_yaml(text: str, where: str) -> Current:
    """The settings of an accelerate YAML under the names of its reader, such as ``fsdp.version``.

    Raises UnusableInput for other YAML.
    """
    from shardguide.readers.accelerate_yaml import read

    evidence = read(text, where)
    found = tuple(
        Setting(name, str(seen.value)[:400], True, f"{where}:{seen.line}", f"{name}: {str(seen.value)[:100]}")
        for name, seen in evidence.settings
    )
    values = {setting.name: setting.value for setting in found}
    kind = values.get("distributed_type", "").upper()
    fsdp = any(name.startswith("fsdp.") for name in values)
    notes = evidence.notes
    strategy = ""
    if kind == "DEEPSPEED":
        strategy = "deepspeed"
        notes += (f"{where}: it configures DeepSpeed, not FSDP.",)
    elif kind == "FSDP" or (not kind and fsdp):  # with another distributed_type accelerate leaves fsdp_config aside
        strategy = "fsdp2" if values.get("fsdp.version", "1") == "2" else "fsdp1"
        if not fsdp:
            notes += (f"{where}: it chooses FSDP but has no fsdp_config, so accelerate's defaults hold.",)
    elif kind.startswith("MULTI_"):
        strategy = "ddp"
    return Current(where, "yaml", strategy, (Call("accelerate", "accelerate", f"{where}:1", "", False, found),), notes)


def _flat_json(value: Any, prefix: str, where: str, into: list[Setting]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if len(into) < _MAX:
                _flat_json(inner, f"{prefix}.{key}" if prefix else key, where, into)
        return
    text = value if isinstance(value, str) else repr(value)
    into.append(Setting(prefix[:200], text[:400], True, where, text[:120]))


def from_json(text: str, where: str) -> Current:
    """The settings of a DeepSpeed JSON or of a Trainer's ``fsdp_config`` JSON. Raises UnusableInput for others."""
    value = parse_json(text, where, values=100_000)
    check_depth(value, where)
    if isinstance(value, dict) and "cells" in value and "nbformat" in value:
        raise UnusableInput(f"{where}: a notebook; export its code as a .py file and hand that over.")
    keys = set(value) if isinstance(value, dict) else set()
    found: list[Setting] = []
    _flat_json(value, "", where, found)
    if keys & {"zero_optimization", "train_micro_batch_size_per_gpu"}:
        call = Call("deepspeed", "deepspeed", where, "", False, tuple(found))
        return Current(where, "json", "deepspeed", (call,), (f"{where}: it configures DeepSpeed, not FSDP.",))
    fsdp = {"min_num_params", "transformer_layer_cls_to_wrap", "backward_prefetch", "use_orig_params", "fsdp_version"}
    if any(key.startswith("fsdp_") or key in fsdp for key in keys):
        version = str(value.get("fsdp_version", value.get("version", 1)))
        call = Call("accelerate", "transformers", where, "", False, tuple(found))
        return Current(where, "json", "fsdp2" if version == "2" else "fsdp1", (call,))
    raise UnusableInput(f"{where}: no settings that are known: hand over training code or an accelerate YAML.")
