"""Hugging Face Accelerate's YAML (``accelerate config``), FSDP1 and FSDP2 forms.

Field names: ``ClusterConfig`` in accelerate/commands/config/config_args.py. ``num_processes`` counts over all machines.
The YAML is read with SafeLoader, and only when it holds nothing that a configuration does not need: no aliases (they
can grow without bound), no tags (they can name Python objects), no deep nesting.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

from .hw_evidence import HardwareEvidence, Seen, clean_lines

LIMIT = 256 << 10  # bytes; real ones have one kilobyte
_DEPTH = 16
_EVENTS = 20_000
_KNOWN = ("distributed_type", "fsdp_config", "compute_environment", "num_processes", "num_machines", "mixed_precision")
# accelerate/utils/constants.py, FSDP_SHARDING_STRATEGY, counted from 1.
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_SECTIONS = {"fsdp_config": ("fsdp.", "fsdp_"), "parallelism_config": ("parallelism.", "parallelism_config_")}


def recognised(text: str) -> bool:
    """Whether ``text`` looks like such a file: two of its top-level fields at the beginning of lines."""
    return sum(f"\n{name}:" in f"\n{text}" for name in _KNOWN) >= 2


def read(text: str, where: str) -> HardwareEvidence:
    """The settings of the file, flat: ``num_processes``, ``fsdp.version``, ``parallelism.tp_size`` and so on.

    Raises UnusableInput for anything but such a file.
    """
    if len(text) > LIMIT:
        raise UnusableInput(f"{where}: {len(text)} characters are more than an accelerate configuration has.")
    text = "\n".join(line.rstrip("\r") for line in clean_lines(text, where))
    root = _load(text, where)
    settings: dict[str, Seen] = {}
    notes: list[str] = []
    for key, value, line in root:
        prefix, common = _SECTIONS.get(key, ("", ""))
        if isinstance(value, list) and prefix:
            for name, inner, inner_line in value:
                _put(settings, notes, prefix + name.removeprefix(common), inner, inner_line)
        elif not isinstance(value, list):
            _put(settings, notes, key, value, line)
        elif value:
            _put(settings, notes, key, "set", line)  # another section, e.g. deepspeed_config: only that it is there
    if not set(_KNOWN) & {key for key, _, _ in root}:
        raise UnusableInput(f"{where}: this is not an accelerate configuration (it has no distributed_type).")
    _canonical(settings, where)
    return HardwareEvidence("accelerate", where, settings=tuple(settings.items()), notes=tuple(notes))


def _put(settings: dict[str, Seen], notes: list[str], name: str, value: Any, line: int) -> None:
    if name in settings:
        notes.append(f"line {line}: {name} is given twice; the later one counts")
    settings[name] = Seen(value, line)


def _canonical(settings: dict[str, Seen], where: str) -> None:
    """Checks the counts and gives words their usual form. Raises UnusableInput for a count that is none."""
    for name in ("num_processes", "num_machines", "machine_rank"):
        seen = settings.get(name)
        if seen is None or seen.value is None:
            continue
        least = 0 if name == "machine_rank" else 1
        if name == "num_processes" and seen.value == -1:
            continue  # accelerate's default: given at launch
        if isinstance(seen.value, bool) or not isinstance(seen.value, int) or not least <= seen.value <= 1 << 24:
            raise UnusableInput(
                f"{where}, line {seen.line}: {name} must be a whole number of at least {least}, "
                f"not {str(seen.value)[:40]!r}."
            )
    for name in ("mixed_precision", "distributed_type"):
        seen = settings.get(name)
        if seen and seen.value is False:  # an unquoted no is false in YAML
            settings[name] = Seen("no", seen.line)
    # In the FSDP1 form of newer releases reshard_after_forward carries the strategy; in the FSDP2 form it is a boolean.
    reshard = settings.get("fsdp.reshard_after_forward")
    if reshard and reshard.value in _STRATEGIES:
        settings.setdefault("fsdp.sharding_strategy", reshard)
    strategy = settings.get("fsdp.sharding_strategy")
    if strategy and isinstance(strategy.value, int) and not isinstance(strategy.value, bool):
        if not 1 <= strategy.value <= len(_STRATEGIES):
            raise UnusableInput(
                f"{where}, line {strategy.line}: {strategy.value} is not one of FSDP's strategies 1 to 5."
            )
        settings["fsdp.sharding_strategy"] = Seen(_STRATEGIES[strategy.value - 1], strategy.line)


def _load(text: str, where: str) -> list[tuple[str, Any, int]]:
    """The mapping as (key, value, line); nested mappings likewise, sequences of scalars as tuples."""
    import yaml

    try:
        depth = 0
        for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise UnusableInput(f"{where}: YAML anchors and aliases are not read; write the values out.")
            if str(getattr(event, "tag", None) or "").startswith(("tag:yaml.org,2002:python", "!")):
                raise UnusableInput(f"{where}: YAML tags are not read; a configuration needs none.")
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                depth += 1
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                depth -= 1
            if depth > _DEPTH or count > _EVENTS:
                raise UnusableInput(f"{where}: nested deeper or longer than any accelerate configuration.")
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if not isinstance(node, yaml.MappingNode):
                raise UnusableInput(f"{where}: this is not an accelerate configuration (it is no mapping of names).")
            return _mapping(loader, node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UnusableInput(f"{where}{line}: this is not valid YAML.") from None
    except (ValueError, OverflowError, RecursionError):
        raise UnusableInput(f"{where}: a value in this YAML cannot be read.") from None


def _mapping(loader: Any, node: Any) -> list[tuple[str, Any, int]]:
    import yaml

    found: list[tuple[str, Any, int]] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        inner: Any
        if isinstance(value, yaml.MappingNode):
            inner = _mapping(loader, value)
        elif isinstance(value, yaml.SequenceNode):
            inner = tuple(loader.construct_object(item) for item in value.value if isinstance(item, yaml.ScalarNode))
        else:
            inner = loader.construct_object(value)
        found.append((str(key.value)[:80], inner, key.start_mark.line + 1))
    return found
