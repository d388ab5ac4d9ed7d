"""Checks of accelerate's configuration, as a YAML file or as options of accelerate launch.

What each key does was read in accelerate 1.15.0: commands/launch.py turns it into environment variables, and
FullyShardedDataParallelPlugin (utils/dataclasses.py) reads those.
"""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple

from .report import Report, replaced
from .words import Text, Word

_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_READ = frozenset(
    ("version", "offload_params", "min_num_params", "sharding_strategy", "reshard_after_forward", "auto_wrap_policy",
     "transformer_layer_cls_to_wrap", "backward_prefetch", "state_dict_type", "forward_prefetch", "use_orig_params",
     "cpu_ram_efficient_loading", "sync_module_states", "activation_checkpointing", "activation_checkpointing_offload",
     "ignored_modules")
)  # fmt: skip
_FSDP1 = {
    "backward_prefetch": ("NO_PREFETCH", None, "", "null"),
    "forward_prefetch": (False, None, "false"),
    "use_orig_params": (True, None, "true"),
    "sync_module_states": (True, False, None, "true", "false"),
}
_TRUE = (True, "true", "True", "yes", "1", 1)


class Entry(NamedTuple):
    """One key."""

    value: Any
    at: Word


class Config(NamedTuple):
    """A configuration."""

    text: Text
    top: dict[str, Entry]
    fsdp: dict[str, Entry]  # names without fsdp_
    file: bool  # a YAML file, not options of a command


def check(config: Config, report: Report) -> None:
    """All checks of one configuration."""
    _processes(config, report)
    kind = config.top.get("distributed_type")
    if config.file and (kind is None or str(kind.value).upper() != "FSDP"):
        return
    if not config.fsdp:
        return
    version = str(_value(config, "version", 1))
    if version == "2":
        _second(config, report)
    elif version == "1":
        _first(config, report)
    _both(config, report, version)


def _value(config: Config, name: str, default: Any = None) -> Any:
    found = config.fsdp.get(name)
    return default if found is None else found.value


def _strategy(value: Any) -> str:
    if isinstance(value, str) and value.upper() in _STRATEGIES:
        return value.upper()
    number = (
        int(value)
        if isinstance(value, int) and not isinstance(value, bool)
        else int(value)
        if str(value).isdigit()
        else 0
    )
    return _STRATEGIES[number - 1] if 1 <= number <= len(_STRATEGIES) else ""


def _first(config: Config, report: Report) -> None:
    reshard, strategy = config.fsdp.get("reshard_after_forward"), config.fsdp.get("sharding_strategy")
    if reshard is not None:
        asked, counts = _strategy(reshard.value), _strategy(strategy.value) if strategy else "FULL_SHARD"
        if asked and counts and asked != counts:
            old = "fsdp_reshard_after_forward"
            edits = () if strategy else replaced(config.text, *reshard.at[1:3], old, "fsdp_sharding_strategy")
            report.add("FSD020", config.text, reshard.at, True, edits, asked=asked, counts=counts)
    if strategy is not None and _strategy(strategy.value) == "NO_SHARD":
        report.add("FSD031", config.text, strategy.at, False)
    dynamo = config.top.get("dynamo_backend")
    compiled = dynamo is not None and str(dynamo.value).upper() not in ("NO", "NONE", "FALSE", "")
    orig = config.fsdp.get("use_orig_params")
    if compiled and orig is not None and orig.value in (False, "false", "False"):
        report.add("FSD027", config.text, orig.at, True)
    offload = config.fsdp.get("activation_checkpointing_offload")
    if offload is not None and offload.value in _TRUE:
        report.add("FSD032", config.text, offload.at, True, needs="fsdp_version 2")


def _second(config: Config, report: Report) -> None:
    reshard, strategy = config.fsdp.get("reshard_after_forward"), config.fsdp.get("sharding_strategy")
    if strategy is not None and _strategy(strategy.value) not in ("", "FULL_SHARD"):
        asked = _strategy(strategy.value)
        if not (asked == "SHARD_GRAD_OP" and reshard is not None and reshard.value in (False, "false")):
            report.add("FSD021", config.text, strategy.at, True, asked=asked)
    if reshard is not None and str(reshard.value).lower() not in _BOOLEANS:
        report.add("FSD022", config.text, reshard.at, True, value=str(reshard.value)[:30])
    idle = [name for name, same in _FSDP1.items() if name in config.fsdp and config.fsdp[name].value not in same]
    if idle:
        names = ", ".join(f"fsdp_{name}" for name in idle)
        report.add("FSD023", config.text, config.fsdp[idle[0]].at, False, names=names)
    kind = config.fsdp.get("state_dict_type")
    if kind is not None and str(kind.value).upper() in ("LOCAL_STATE_DICT", "2"):
        report.add("FSD024", config.text, kind.at, True)
    offload = config.fsdp.get("activation_checkpointing_offload")
    if offload is not None and offload.value in _TRUE and _value(config, "activation_checkpointing") not in _TRUE:
        report.add("FSD032", config.text, offload.at, True, needs="fsdp_activation_checkpointing: true")


_BOOLEANS = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0", "none", "")


def _both(config: Config, report: Report, version: str) -> None:
    sync, lazy = config.fsdp.get("sync_module_states"), _value(config, "cpu_ram_efficient_loading", True)
    if config.file and sync is not None and sync.value is False and lazy:
        report.add(
            "FSD025",
            config.text,
            sync.at,
            True,
            lazy="true" if "cpu_ram_efficient_loading" in config.fsdp else "not set, so true",
        )
    policy = config.fsdp.get("auto_wrap_policy")
    named = str(policy.value).upper() if policy is not None else "NO_WRAP"
    if config.file and named in ("NO_WRAP", "NONE"):
        at = policy.at if policy is not None else config.fsdp[next(iter(config.fsdp))].at
        report.add(
            "FSD026",
            config.text,
            at,
            False,
            what="no wrapping policy is named" if policy is None else f"the policy is {named}",
        )
    least = config.fsdp.get("min_num_params")
    if named == "SIZE_BASED_WRAP" and least is not None and str(least.value) == "0":
        report.add("FSD026", config.text, least.at, True, what="fsdp_min_num_params 0 switches the policy off")
    if config.file:
        for name, entry in config.fsdp.items():
            if name not in _READ:
                report.add("FSD028", config.text, entry.at, False, key=f"fsdp_{name}"[:60])


def machines(config: Config, at: Word, certain: bool, report: Report) -> None:
    """Several machines, and no address at which they meet. ``config``: all that the launch goes by."""
    over, address = config.top.get("num_machines"), config.top.get("main_process_ip")
    count = whole(over.value) if over is not None else None
    if count is not None and count > 1 and (address is None or address.value in (None, "")):
        report.add("FSD033", config.text, at, certain, machines=count)


def _processes(config: Config, report: Report) -> None:
    """Processes that do not divide over the machines."""
    every, machines = config.top.get("num_processes"), config.top.get("num_machines")
    if every is None or machines is None:
        return
    total, over = whole(every.value), whole(machines.value)
    if total is not None and over is not None and over > 1 and total % over:
        report.add(
            "FSD029",
            config.text,
            every.at,
            True,
            total=total,
            machines=over,
            each=total // over,
            real=total // over * over,
        )


def whole(value: Any) -> int | None:
    """A count as a number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 < value < 1 << 24 else None
    return int(value) if isinstance(value, str) and value.isdigit() and 0 < len(value) < 7 else None
