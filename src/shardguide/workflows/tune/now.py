"""The current settings of precision and offload, from code, YAML or what was said, as one value."""

from __future__ import annotations

from shardguide.code.current import Current
from shardguide.guidance.dtypes import dtype_name
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.named import NamedTuple

from ..request import NOW_KEYS

_STRATEGIES = {
    "FULL_SHARD": "full", "SHARD_GRAD_OP": "grad_op", "NO_SHARD": "none", "HYBRID_SHARD": "hybrid", "_HYBRID_SHARD_ZERO2": "hybrid",
    "full": "full", "grad_op": "grad_op", "none": "none", "hybrid": "hybrid",
}  # fmt: skip
_LOW = {"fp16": "float16", "bf16": "bfloat16", "float16": "float16", "bfloat16": "bfloat16"}


class Now(NamedTuple):
    """What runs today. "" stands for not set (None in PyTorch); "unknown" for what cannot be read without running the code."""

    api: str = ""  # "fsdp2", "fsdp1", "ddp"; "" if unknown
    strategy: str = ""  # "full", "grad_op", "hybrid", "none"; "" if unknown
    shard_size: int = 0  # of a mesh that was read; 0 if unknown
    param: str = ""  # compute dtype
    reduce: str = ""
    output: str = ""
    buffer: str = ""  # FSDP1's buffer_dtype
    cast_inputs: str = ""
    offload: str = ""  # "", "pinned", "pageable"
    scaler: str = ""  # "", "GradScaler", "ShardedGradScaler"
    clipping: str = ""  # what was called
    backend: str = ""
    known: bool = False  # whether anything was read or said
    where: tuple[tuple[str, str], ...] = ()  # (setting, file:line or "user")


def from_words(pairs: tuple[str, ...]) -> dict[str, str]:
    """``--now param=bf16`` to checked settings. Raises UnusableInput for a key or value that makes no sense."""
    out: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in NOW_KEYS:
            raise UnusableInput(f"--now takes KEY=VALUE with one of {', '.join(NOW_KEYS)}, not {pair[:60]!r}.")
        if key in ("param", "reduce", "output"):
            out[key] = "" if value.lower() in ("none", "") else dtype_name(value)
        elif key == "strategy":
            if value not in ("full", "grad_op", "hybrid", "none"):
                raise UnusableInput(f"--now strategy must be full, grad_op, hybrid or none, not {value[:40]!r}.")
            out[key] = value
        elif key == "offload":
            words = {"yes": "pinned", "pinned": "pinned", "pageable": "pageable", "no": "", "none": ""}
            if value not in words:
                raise UnusableInput(f"--now offload must be yes, no, pinned or pageable, not {value[:40]!r}.")
            out[key] = words[value]
        elif key == "scaler":
            if value not in ("yes", "no"):
                raise UnusableInput(f"--now scaler must be yes or no, not {value[:40]!r}.")
            out[key] = "GradScaler" if value == "yes" else ""
        elif value in ("fsdp1", "fsdp2", "ddp"):
            out[key] = value
        else:
            raise UnusableInput(f"--now api must be fsdp1, fsdp2 or ddp, not {value[:40]!r}.")
    return out


class _Read:
    """Collects the settings of a Current, the first of each with its place."""

    def __init__(self, current: Current) -> None:
        self.current = current
        self.values: dict[str, str] = {}
        self.where: dict[str, str] = {}

    def take(self, field: str, kind: str, name: str) -> None:
        for setting in self.current.settings(kind, name):
            if field not in self.values:
                self.values[field] = setting.value if setting.known else "unknown"
                self.where[field] = setting.where
                if setting.value == "None":
                    self.values[field] = ""

    def set(self, field: str, value: str, where: str) -> None:
        self.values.setdefault(field, value)
        self.where.setdefault(field, where)


def read(current: Current | None, said: dict[str, str]) -> Now:
    """Settings that were said win over those that were read."""
    values: dict[str, str] = {}
    where: dict[str, str] = {}
    shard = 0
    if current is not None:
        taken = _Read(current)
        api = next((one for one in ("fsdp2", "fsdp1", "ddp") if one in current.strategy.split("+")), "")
        if api:
            taken.set("api", api, current.where)
        if current.language == "yaml":
            _from_accelerate(taken, current)
        elif api == "fsdp2":
            shard = _from_fsdp2(taken, current)
        elif api == "fsdp1":
            _from_fsdp1(taken)
        elif api == "ddp":
            taken.set("strategy", "none", current.where)
        for call in current.calls:
            if call.what.endswith("GradScaler"):
                taken.set("scaler", call.what.rpartition(".")[2], call.where)
            elif call.kind == "clipping":
                taken.set("clipping", call.what, call.where)
        taken.take("backend", "process_group", "backend")
        values, where = taken.values, taken.where
    values |= said
    where |= dict.fromkeys(said, "user")
    fields = {name: value for name, value in values.items() if name in Now._fields}
    return Now(**fields, shard_size=shard, known=bool(values), where=tuple(sorted(where.items())))


def _from_fsdp2(taken: _Read, current: Current) -> int:
    for field, name in (
        ("param", "param_dtype"),
        ("reduce", "reduce_dtype"),
        ("output", "output_dtype"),
        ("cast_inputs", "cast_forward_inputs"),
    ):
        taken.take(field, "fsdp2", f"mp_policy.{name}")
    for setting in current.settings("fsdp2", "offload_policy"):
        if setting.value == "CPUOffloadPolicy":
            pinned = current.settings("fsdp2", "offload_policy.pin_memory")
            taken.set("offload", "pageable" if any(p.value == "False" for p in pinned) else "pinned", setting.where)
    shard = 0
    shapes = [s for s in current.settings("fsdp2", "mesh.mesh_shape") if s.known]
    sizes = (
        [int(part) for part in shapes[0].value.strip("()[] ,").split(",") if part.strip().isdigit()] if shapes else []
    )
    layers = [call for call in current.calls if call.kind == "fsdp2"]
    kept = [
        s.value
        for call in layers
        if call.repeated or len(layers) == 1
        for s in call.settings
        if s.name == "reshard_after_forward"
    ]
    if len(sizes) == 2:
        taken.set("strategy", "hybrid", shapes[0].where)
        shard = sizes[1]
    elif "False" in kept:
        taken.set("strategy", "grad_op", layers[0].where)
    else:
        taken.set("strategy", "full", layers[0].where if layers else current.where)
    return shard


def _from_fsdp1(taken: _Read) -> None:
    for field, name in (
        ("param", "param_dtype"),
        ("reduce", "reduce_dtype"),
        ("buffer", "buffer_dtype"),
        ("cast_inputs", "cast_forward_inputs"),
    ):
        taken.take(field, "fsdp1", f"mixed_precision.{name}")
    taken.take("strategy", "fsdp1", "sharding_strategy")
    taken.values["strategy"] = _STRATEGIES.get(taken.values.get("strategy", "FULL_SHARD"), "")
    for setting in taken.current.settings("fsdp1", "cpu_offload.offload_params"):
        if setting.value == "True":
            taken.set("offload", "pinned", setting.where)


def _from_accelerate(taken: _Read, current: Current) -> None:
    """Accelerate gives one dtype to computation, reduction and outputs (FSDP1: buffers).

    Source: ``FullyShardedDataParallelPlugin.set_mixed_precision`` in accelerate 1.15.0.
    """
    for setting in current.settings("accelerate", "mixed_precision"):
        low = _LOW.get(setting.value, "")
        version = [one.value for one in current.settings("accelerate", "fsdp.version")]
        for field in ("param", "reduce", "output" if version == ["2"] else "buffer"):
            taken.set(field, low, setting.where)
        if low == "float16":
            taken.set("scaler", "GradScaler", setting.where)
    for setting in current.settings("accelerate", "fsdp.offload_params"):
        taken.set("offload", "pinned" if setting.value == "True" else "", setting.where)
    for setting in current.settings("accelerate", "fsdp.sharding_strategy"):
        taken.set("strategy", _STRATEGIES.get(setting.value, ""), setting.where)
    for setting in current.settings("accelerate", "fsdp.reshard_after_forward"):
        taken.set("strategy", "full" if setting.value == "True" else "grad_op", setting.where)
