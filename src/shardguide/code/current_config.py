"""Current settings in configuration files: accelerate's YAML, a Trainer's, and DeepSpeed's JSON (said to be that)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardguide.guidance.errors import UnusableInput
from shardguide.readers.files import check_depth, parse_json

from .current import Call, Current, Setting

if TYPE_CHECKING:
    import yaml

YAML_LIMIT = 1 << 16  # characters; accelerate writes less than 4,000, and the YAML parser is slow
_DEPTH = 20
_MAX = 2000


def _mapping(text: str, where: str) -> yaml.MappingNode:
    """The document as a tree of nodes with their lines. Aliases are refused: they can stand for endless documents."""
    import yaml

    if len(text) > YAML_LIMIT:
        raise UnusableInput(f"{where}: larger than {YAML_LIMIT} characters, more than any accelerate configuration.")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise UnusableInput(f"{where}: it uses YAML aliases, which are not followed; write the values out.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH:
                raise UnusableInput(f"{where}: nested deeper than {_DEPTH} levels.")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise UnusableInput(f"{where}{place}: not valid YAML.") from None
    except (RecursionError, ValueError):
        raise UnusableInput(f"{where}: not valid YAML.") from None
    if not isinstance(node, yaml.MappingNode):
        raise UnusableInput(f"{where}: not a configuration: the YAML is not a mapping.")
    return node


def _flat(node: yaml.Node, prefix: str, where: str, into: list[Setting]) -> None:
    """Every scalar under ``node`` as a setting named by its path; the value exactly as the file writes it."""
    import yaml

    if len(into) >= _MAX:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                _flat(value, f"{prefix}.{key.value}" if prefix else key.value, where, into)
        return
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        parts = [item.value for item in node.value if isinstance(item, yaml.ScalarNode)]
        text = f"[{', '.join(parts)}]"[:400]
        into.append(Setting(prefix[:200], text, len(parts) == len(node.value), f"{where}:{line}", text[:120]))
    elif isinstance(node, yaml.ScalarNode):
        text = "None" if node.tag.endswith(":null") else str(node.value)[:400]
        if node.tag.endswith(":bool"):
            text = "True" if text.lower() in ("true", "yes", "on") else "False"
        into.append(Setting(prefix[:200], text, True, f"{where}:{line}", str(node.value)[:120]))


def from_yaml(text: str, where: str) -> Current:
    """The settings of an accelerate (or Trainer) YAML; keys keep their own names, with ``fsdp_config.`` before them.

    Raises UnusableInput for YAML without a word about FSDP, DeepSpeed or a distributed type.
    """
    found: list[Setting] = []
    _flat(_mapping(text, where), "", where, found)
    values = {setting.name: setting.value for setting in found}
    kind = values.get("distributed_type", "").upper()
    fsdp = [name for name in values if name.startswith(("fsdp_config.", "fsdp.")) or name == "fsdp"]
    if not kind and not fsdp and not any(name.startswith("deepspeed") for name in values):
        raise UnusableInput(f"{where}: no accelerate configuration: neither distributed_type nor fsdp_config is there.")
    notes: tuple[str, ...] = ()
    strategy = ""
    if kind == "DEEPSPEED" or (not kind and not fsdp):
        strategy = "deepspeed"
        notes = (f"{where}: it configures DeepSpeed, not FSDP.",)
    elif kind == "FSDP" or not kind:  # with another distributed_type accelerate leaves fsdp_config aside
        version = values.get("fsdp_config.fsdp_version", values.get("fsdp_config.version", "1"))
        strategy = "fsdp2" if version == "2" else "fsdp1"
        if not fsdp:
            notes = (f"{where}: it chooses FSDP but has no fsdp_config, so accelerate's defaults hold.",)
    elif kind.startswith("MULTI_"):
        strategy = "ddp"
    call = Call("accelerate", "accelerate", f"{where}:1", "", False, tuple(found))
    return Current(where, "yaml", strategy, (call,), notes)


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
