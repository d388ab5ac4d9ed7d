"""Current settings out of accelerate's YAML, or the ``fsdp_config`` JSON of a transformers Trainer.

Source: accelerate 1.15.0, ``accelerate launch`` (the defaults of what a YAML leaves out), ``ParallelismConfig``,
``FullyShardedDataParallelPlugin.set_mixed_precision``,
``fsdp2_prepare_model`` (which modules are wrapped), ``Accelerator.__init__`` (scaler), ``PartialState`` (backend).
"""

from __future__ import annotations

from shardguide.code.current import Setting

from .now import UNKNOWN, Reading, usual_gathers

_LOW = {"fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16", "no": ""}
_FSDP1 = {
    "FULL_SHARD": "full", "SHARD_GRAD_OP": "grad_op", "NO_SHARD": "none", "HYBRID_SHARD": "hybrid",
    "HYBRID_SHARD_ZERO2": "hybrid",
}  # fmt: skip


class _Settings:
    """The file's settings by accelerate's names; a Trainer's JSON has them without their section."""

    def __init__(self, reading: Reading) -> None:
        self.json = reading.current.language == "json"
        self.by_name = {s.name: s for call in reading.current.calls for s in call.settings}

    def get(self, name: str) -> Setting | None:
        found = self.by_name.get(name)
        if found is None and self.json and name.startswith("fsdp."):
            short = name.removeprefix("fsdp.")
            found = self.by_name.get(f"fsdp_{short}") or self.by_name.get(short)
        return None if found is None or found.value in ("None", "") else found

    def value(self, name: str, default: str = "") -> str:
        found = self.get(name)
        return default if found is None else found.value

    def true(self, name: str) -> bool:
        return self.value(name).lower() == "true"

    def size(self, name: str) -> int:
        text = self.value(f"parallelism.{name}", "1")
        return int(text) if text.isdigit() and 0 < len(text) < 8 else 0

    def where(self, name: str, default: str) -> str:
        found = self.get(name)
        return default if found is None else found.where


def read_accelerate(reading: Reading) -> None:
    """Every field that the file decides, accelerate's defaults included."""
    settings, top = _Settings(reading), reading.current.where
    api = reading.current.strategy
    processes = settings.value("num_processes")
    if processes.isdigit() and int(processes) > 0:
        reading.set("world", int(processes), settings.where("num_processes", top))
    if api not in ("fsdp1", "fsdp2", "ddp"):
        return
    reading.set("api", api, settings.where("distributed_type", top))
    if not settings.json:
        _precision(reading, settings, api)
    if api == "ddp":
        return
    place = settings.where("fsdp.offload_params", top)
    offload = settings.true("fsdp.offload_params")
    if not settings.json or settings.get("fsdp.offload_params"):
        reading.set("offload", "pinned" if offload else "", place)
    full = settings.value("fsdp.state_dict_type", "SHARDED_STATE_DICT") == "FULL_STATE_DICT"
    if not settings.json:
        reading.set("backend", "cuda:nccl,cpu:gloo" if offload or full else "nccl", place)
    if api == "fsdp1":
        _fsdp1(reading, settings)
    else:
        _fsdp2(reading, settings)


def _precision(reading: Reading, settings: _Settings, api: str) -> None:
    """One dtype for computation, reduction and outputs (FSDP1: buffers); under DDP that of autocast."""
    place = settings.where("mixed_precision", reading.current.where)
    low = _LOW.get(settings.value("mixed_precision", "no"), UNKNOWN)
    if api == "ddp" and settings.value("mixed_precision") == "fp8":
        low = UNKNOWN  # what computes in which dtype is its fp8 backend's
    fields = {"fsdp2": ("param", "reduce", "output"), "fsdp1": ("param", "reduce", "buffer"), "ddp": ("param",)}[api]
    for field in fields:
        reading.set(field, low, place)
    if api != "ddp":
        reading.set("cast_inputs", "True" if api == "fsdp2" else "False", place)
    scaler = "ShardedGradScaler" if api == "fsdp1" else "GradScaler"
    reading.set("scaler", scaler if low == "float16" else UNKNOWN if low == UNKNOWN else "", place)


def _fsdp1(reading: Reading, settings: _Settings) -> None:
    top = reading.current.where
    given = settings.value("fsdp.sharding_strategy") or settings.value("fsdp.reshard_after_forward")
    name = "fsdp.sharding_strategy" if settings.get("fsdp.sharding_strategy") else "fsdp.reshard_after_forward"
    if not settings.json or given:
        reading.set("strategy", _FSDP1.get((given or "FULL_SHARD").upper(), UNKNOWN), settings.where(name, top))
    if not settings.json or settings.get("fsdp.use_orig_params"):
        orig = settings.value("fsdp.use_orig_params", "true").lower() == "true"
        reading.set("orig_params", orig, settings.where("fsdp.use_orig_params", top))
    policy = _policy(settings)
    place = settings.where("fsdp.auto_wrap_policy", top)
    strategy = reading.text("strategy")
    if policy == "TRANSFORMER_BASED_WRAP":
        _layers(reading, settings)
    elif policy == "NO_WRAP":
        reading.set("wrapping", (), place)
    if "wrapping" in reading.fields and strategy in ("full", "grad_op", "hybrid"):
        twice = 1 if "GRAD_OP" in given.upper() or "ZERO2" in given.upper() else 2
        reading.set("gathers", (("block", twice), ("root", 1)), place)


def _policy(settings: _Settings) -> str:
    """The auto_wrap_policy; a YAML that names none gets NO_WRAP, while a Trainer's JSON leaves it to the Trainer."""
    return settings.value("fsdp.auto_wrap_policy", "" if settings.json else "NO_WRAP").upper()


def _layers(reading: Reading, settings: _Settings) -> None:
    classes = settings.value("fsdp.transformer_layer_cls_to_wrap")
    reading.set("wrapping", ("block",), settings.where("fsdp.auto_wrap_policy", reading.current.where))
    if classes:
        names = tuple(part.strip(" '\"") for part in classes.strip("()[]").split(",") if part.strip())
        reading.set("classes", names, settings.where("fsdp.transformer_layer_cls_to_wrap", reading.current.where))
    else:
        reading.assumed.append(
            "the model's _no_split_modules, which accelerate wraps, are taken as its repeated layers"
        )


def _fsdp2(reading: Reading, settings: _Settings) -> None:
    top = reading.current.where
    place = settings.where("fsdp.reshard_after_forward", top)
    reshard = {"true": True, "false": False}.get(settings.value("fsdp.reshard_after_forward", "True").lower())
    _parallelism(reading, settings)
    strategy = "grad_op" if reshard is False else "full" if reshard is True else UNKNOWN
    reading.set("strategy", strategy, place)
    policy = _policy(settings)
    if policy in ("TRANSFORMER_BASED_WRAP", "NO_WRAP"):
        if policy == "NO_WRAP":
            reading.set("wrapping", ("embedding", "head"), place)
        else:
            _layers(reading, settings)
            reading.fields["wrapping"] = ("block", "embedding", "head")
        reading.assumed.append("the groups are those of accelerate 1.15, which earlier releases do not all make")
        if reshard is not None:
            reading.set("gathers", usual_gathers("fsdp2", "full" if reshard else "grad_op"), place)


def _parallelism(reading: Reading, settings: _Settings) -> None:
    """parallelism_config: FSDP shards over dp_shard x cp and replicates over dp_replicate; tp is apart."""
    names = ("dp_replicate_size", "dp_shard_size", "cp_size", "sp_size", "tp_size")
    if not any(settings.get(f"parallelism.{name}") for name in names):
        return
    replicate, shard, context, sequence, tensor = (settings.size(name) for name in names)
    place = settings.where(
        "parallelism.dp_replicate_size", settings.where("parallelism.dp_shard_size", reading.current.where)
    )
    reading.set("tp", tensor, settings.where("parallelism.tp_size", place))
    if sequence != 1 or not replicate or not shard * context or (replicate > 1 and shard == 1):
        reading.set("strategy", UNKNOWN, place)
        reading.notes.append(f"{place}: these sizes of parallelism_config are not read as a way of sharding.")
        return
    reading.set("shard", shard * context, place)
    reading.set("replicate", replicate, place)
    if replicate > 1:
        reading.set("strategy", "hybrid", place)
