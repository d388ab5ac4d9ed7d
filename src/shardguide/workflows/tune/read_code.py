"""Current settings out of FSDP2, FSDP1 or DDP code, as ``code.current`` found its calls."""

from __future__ import annotations

from shardguide.code.current import Call, Setting

from .now import SHARDED, UNKNOWN, Reading

_FSDP1 = {
    "FULL_SHARD": "full", "SHARD_GRAD_OP": "grad_op", "NO_SHARD": "none", "HYBRID_SHARD": "hybrid",
    "_HYBRID_SHARD_ZERO2": "hybrid", "None": "full",
}  # fmt: skip
_DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
_NOT_DATA = ("tp", "tensor", "pp", "pipeline", "pipe", "cp", "context", "ep", "expert")
# Optimizers whose state is known, or known to be open; FSDP-specific wrappers of optimizers are none of them.
_OPTIMIZERS = frozenset(
    {"adam", "adamw", "sgd", "adagrad", "rmsprop", "adamax", "nadam", "radam", "adadelta", "asgd", "rprop", "muon",
     "adafactor", "lbfgs", "sparseadam", "adamw8bit", "adam8bit", "lion"}
)  # fmt: skip


def read_code(reading: Reading, minor: tuple[int, int]) -> None:
    """Every field that the file decides."""
    current = reading.current
    found = current.strategy.split("+") if current.strategy else []
    api = next((one for one in ("fsdp2", "fsdp1", "ddp") if one in found), "")
    calls = [call for call in current.calls if call.kind == api]
    if api:
        reading.set("api", api, calls[0].where)
    if len(found) > 1:
        reading.notes.append(f"{current.where}: it sets up {' and '.join(found)}; the settings of {api} are compared.")
    if api == "fsdp2":
        _fsdp2(reading, calls, minor)
    elif api == "fsdp1":
        _fsdp1(reading, calls)
    elif any(call.kind in ("accelerator", "trainer") for call in current.calls):
        reading.notes.append(
            f"{current.where}: the framework sets up the sharding; hand over its YAML or JSON as well."
        )
    _loop(reading, api)


def _value(setting: Setting) -> str:
    if not setting.known:
        return UNKNOWN
    return "" if setting.value == "None" else _DTYPES.get(setting.value, setting.value)


def _one(call: Call, name: str, absent: str, holder: str = "") -> tuple[str, str]:
    """(value, place) of an argument of one call; ``holder`` is the class that carries it, e.g. a policy."""
    settings = {setting.name: setting for setting in call.settings}
    if name in settings:
        return _value(settings[name]), settings[name].where
    outer = settings.get(name.rpartition(".")[0]) if holder else None
    if outer is not None and outer.value not in (holder, "None"):
        return UNKNOWN, outer.where
    if outer is None and {"*", "**"} & set(settings):
        return UNKNOWN, call.where
    return absent, outer.where if outer is not None else call.where


def _all(reading: Reading, field: str, calls: list[Call], name: str, absent: str, holder: str = "") -> str:
    """The value that every call agrees on; UNKNOWN, with a note, where they differ."""
    found = [_one(call, name, absent, holder) for call in calls]
    values = list(dict.fromkeys(value for value, _ in found))
    value = values[0] if len(values) == 1 else UNKNOWN
    if len(values) > 1 and UNKNOWN not in values:
        shown = " and ".join(f"{one or 'None'} ({next(w for v, w in found if v == one)})" for one in values[:3])
        reading.notes.append(f"{name.rpartition('.')[2]} is not the same everywhere: {shown}.")
    reading.set(field, value, found[0][1])
    return value


def _fsdp2(reading: Reading, calls: list[Call], minor: tuple[int, int]) -> None:
    for field, name, absent in (
        ("param", "param_dtype", ""),
        ("reduce", "reduce_dtype", ""),
        ("output", "output_dtype", ""),
        ("cast_inputs", "cast_forward_inputs", "True"),
    ):
        _all(reading, field, calls, f"mp_policy.{name}", absent, "MixedPrecisionPolicy")
    policy = _all(reading, "offload", calls, "offload_policy", "")
    if policy == "CPUOffloadPolicy":
        pinned = {_one(call, "offload_policy.pin_memory", "True", "CPUOffloadPolicy")[0] for call in calls}
        kind = {"True": "pinned", "False": "pageable"}.get(pinned.pop() if len(pinned) == 1 else "", "yes")
        reading.fields["offload"] = kind
    elif policy != UNKNOWN:
        reading.fields["offload"] = "" if policy in ("", "OffloadPolicy") else UNKNOWN
    roles = _roles(calls)
    reading.set("wrapping", None if roles is None else tuple(role for role in roles if role != "root"), calls[0].where)
    gathers = {role: _gathers(call, role, minor) for role, call in (roles or {}).items()}
    reading.set("gathers", tuple((role, count) for role, count in gathers.items() if count), calls[0].where)
    layers = [call for call in calls if call.repeated] or calls[:1]
    kept = {_one(call, "reshard_after_forward", "")[0] for call in layers}
    _mesh(reading, calls[0])
    if reading.text("strategy") == "full" and (UNKNOWN in kept or len(kept) > 1):
        reading.fields["strategy"] = SHARDED
        reading.where["strategy"] = next(
            (s.where for call in layers for s in call.settings if s.name == "reshard_after_forward"), layers[0].where
        )
    elif reading.text("strategy") == "full" and kept == {"False"}:
        reading.fields["strategy"] = "grad_op"


def _roles(calls: list[Call]) -> dict[str, Call] | None:
    """Which call wraps what; None where that cannot be told. A loop is over the repeated layers."""
    repeated = [call for call in calls if call.repeated]
    single = [call for call in calls if not call.repeated]
    roots = [call for call in single if call.target.replace("self.", "").isidentifier()]
    if len(repeated) > 1 or len(roots) != 1:
        return None
    found = {"block": repeated[0]} if repeated else {}
    for call in single:
        last = {part.strip(" []").rpartition(".")[2] for part in call.target.split(",")}
        if call is roots[0]:
            continue
        if last & {"embed_tokens", "tok_embeddings", "wte", "embeddings", "embed_in"} and len(last) == 1:
            found["embedding"] = call
        elif last & {"lm_head", "output", "embed_out"} and len(last) == 2:
            found["head"] = call
        else:
            return None
    return found | {"root": roots[0]}


def _gathers(call: Call, role: str, minor: tuple[int, int]) -> int:
    """All-gathers a step of a group: once where it is kept after forward, else twice; 0 if that cannot be read.

    Up to 2.7 the root is kept whatever was passed, from 2.8 on unless something was (claims fsdp2.reshard.*); 1 is the
    integer that keeps.
    """
    value = _one(call, "reshard_after_forward", "")[0]
    if role == "root" and (value == "" or (0, 0) < minor < (2, 8)):
        return 1
    if value == UNKNOWN:
        return 0
    return 1 if value in ("False", "1") else 2


def _mesh(reading: Reading, call: Call) -> None:
    """Strategy and sizes of the mesh that a fully_shard call is given; without one all ranks are one shard group."""
    settings = {setting.name: setting for setting in call.settings}
    mesh = settings.get("mesh")
    if mesh is None or mesh.value == "None":
        reading.set("strategy", UNKNOWN if "**" in settings else "full", call.where)
        return
    names, shape, index, where = "", "", "", mesh.where
    if mesh.known and mesh.value.startswith("init_device_mesh"):
        names = settings["mesh.mesh_dim_names"].value if "mesh.mesh_dim_names" in settings else ""
        shape = settings["mesh.mesh_shape"].value if "mesh.mesh_shape" in settings else ""
        index = mesh.value.partition("[")[2].removesuffix("]")
    else:  # passed through a function: the file's only mesh, where there is one
        made = [one for one in reading.current.calls if one.kind == "mesh" and one.what.endswith("init_device_mesh")]
        if mesh.known or len(made) != 1:
            reading.set("strategy", UNKNOWN, where)
            return
        given = {setting.name: setting for setting in made[0].settings}
        names = given["mesh_dim_names"].value if "mesh_dim_names" in given else ""
        shape = given["mesh_shape"].value if "mesh_shape" in given else ""
        where = made[0].where
        if any(part in _NOT_DATA for part in _items(names)):
            reading.set("strategy", UNKNOWN, where)
            return
    dims, sizes = _items(names), _items(shape)
    counts = [int(size) if size.isdigit() else 0 for size in sizes] if len(sizes) >= len(dims) else [0] * len(dims)
    dims = dims or [str(n) for n in range(len(counts))]
    chosen = _items(index) or dims
    by_name = dict(zip(dims, counts, strict=False))
    if not dims or not set(chosen) <= set(dims) or len(chosen) > 2:
        reading.set("strategy", UNKNOWN, where)
        return
    reading.set("strategy", "hybrid" if len(chosen) == 2 else "full", where)
    reading.fields["shard"] = by_name[chosen[-1]]
    reading.fields["replicate"] = by_name[chosen[0]] if len(chosen) == 2 else 0
    rest = [name for name in dims if name not in chosen]
    if len(rest) == 1 and rest[0] in ("tp", "tensor"):
        reading.set("tp", by_name[rest[0]], where)


def _items(text: str) -> list[str]:
    return [] if text == UNKNOWN else [part.strip() for part in text.strip("()[]{} ").split(",") if part.strip()]


def _fsdp1(reading: Reading, calls: list[Call]) -> None:
    for field, name, absent in (
        ("param", "param_dtype", ""),
        ("reduce", "reduce_dtype", ""),
        ("buffer", "buffer_dtype", ""),
        ("cast_inputs", "cast_forward_inputs", "False"),
    ):
        _all(reading, field, calls, f"mixed_precision.{name}", absent, "MixedPrecision")
    kept = _all(reading, "orig_params", calls, "use_orig_params", "False")
    reading.fields["orig_params"] = {"True": True, "False": False}.get(kept)
    offload = _all(reading, "offload", calls, "cpu_offload.offload_params", "False", "CPUOffload")
    # FSDP1 always pins what it offloads (FlatParamHandle.init_flat_param_attributes).
    reading.fields["offload"] = {"True": "pinned", "False": "", "": ""}.get(offload, UNKNOWN)
    given = _all(reading, "strategy", calls, "sharding_strategy", "FULL_SHARD")
    strategy = _FSDP1.get(given or "None", UNKNOWN)
    reading.fields["strategy"] = strategy
    mesh = _items(_one(calls[0], "device_mesh.mesh_shape", "")[0])
    if strategy == "hybrid" and len(mesh) == 2 and all(size.isdigit() for size in mesh):
        reading.fields["replicate"], reading.fields["shard"] = int(mesh[0]), int(mesh[1])
    elif any(one.name in ("process_group", "device_mesh", "**") and one.value != "None" for one in calls[0].settings):
        reading.assumed.append("the group or mesh given to FSDP was not read, so its default one is taken")
    _fsdp1_wrapping(reading, calls)
    if "wrapping" in reading.fields and strategy in ("full", "grad_op", "hybrid"):
        twice = 1 if given in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2") else 2
        reading.fields["gathers"] = (("block", twice), ("root", 1))


def _fsdp1_wrapping(reading: Reading, calls: list[Call]) -> None:
    """What gets a flat parameter of its own, from auto_wrap_policy or a loop over the layers."""
    policy, where = _one(calls[0], "auto_wrap_policy", "")
    name = {"ModuleWrapPolicy": "module_classes", "transformer_auto_wrap_policy": "transformer_layer_cls"}.get(policy)
    if name is not None:
        classes = _items(_one(calls[0], f"auto_wrap_policy.{name}", "")[0])
        if classes:
            reading.set("wrapping", ("block",), where)
            reading.set("classes", tuple(classes), where)
    elif policy == "" and len(calls) == 1 and not calls[0].repeated:
        reading.set("wrapping", (), where)
    elif policy == "" and [call.repeated for call in calls].count(True) == 1 and len(calls) == 2:
        reading.set("wrapping", ("block",), where)


def _loop(reading: Reading, api: str) -> None:
    """Scaler, autocast, clipping, backend and optimizer: what stands in a training loop, in this file or another."""
    current = reading.current
    optimizers = [call for call in current.calls if call.kind == "optimizer"]
    for call in current.calls:
        if call.kind == "grad_scaler":
            enabled = _one(call, "enabled", "True")[0]
            kind = call.what.rpartition(".")[2]
            reading.set("scaler", {"True": kind, "False": ""}.get(enabled, UNKNOWN), call.where)
        elif call.kind == "clipping":
            method = "model.clip_grad_norm_" if api == "fsdp1" else f"{call.target}.clip_grad_norm_"
            owner = call.target.rpartition(".")[2]
            framework = owner in ("accelerator", "fabric", "trainer")
            named = f"{owner}.clip_grad_norm_" if framework else method
            reading.set("clipping", call.what if "." in call.what else named, call.where)
        elif call.kind == "autocast":
            _autocast(reading, call, api)
        elif call.kind == "process_group":
            reading.set("backend", _one(call, "backend", "")[0], call.where)
    if optimizers:  # then the loop is in this file, and what is not in it is not done
        for field in ("scaler", "clipping", "param" if api == "ddp" else "autocast"):
            reading.set(field, "", optimizers[0].where)
    names = dict.fromkeys(name for name in (optimizer_of(call) for call in optimizers) if name)
    if set(names) == {"muon", "adamw"}:
        names = {"muon": None}  # AdamW takes what Muon does not: they go together
    if len(names) == 1:
        reading.set("optimizer", next(iter(names)), optimizers[0].where)
    elif names:
        reading.notes.append(
            f"{current.where}: several optimizers stand in it ({', '.join(names)}); none was compared."
        )


def _autocast(reading: Reading, call: Call, api: str) -> None:
    """Autocast's dtype: what is given, else the device's default, float16 on a GPU and bfloat16 on the CPU."""
    device = _one(call, "device_type", "")[0]
    dtype, where = _one(call, "dtype", "")
    if ".cuda.amp." in call.what or ".cpu.amp." in call.what:  # their first argument is enabled
        enabled = _one(call, "enabled", device or "True")[0]
        device = "cuda" if ".cuda." in call.what else "cpu"
    else:
        enabled = _one(call, "enabled", "True")[0]
    if dtype == "":
        dtype = {"cuda": "float16", "cpu": "bfloat16"}.get(device, UNKNOWN)
    value = {"True": dtype, "False": ""}.get(enabled, UNKNOWN)
    reading.set("param" if api == "ddp" else "autocast", value, where)


def optimizer_of(call: Call) -> str:
    """``torch.optim.SGD(…, momentum=0.9)`` as --optimizer takes it; "" for what is none that is known."""
    name = call.what.rpartition(".")[2].lower()
    if name not in _OPTIMIZERS:
        return ""
    if name == "sgd":
        momentum = _one(call, "momentum", "0")[0]
        return "sgd" if momentum in ("0", "0.0", "") else "sgd+momentum" if momentum != UNKNOWN else ""
    if name in ("adam", "adamw") and _one(call, "amsgrad", "False")[0] == "True":
        return f"{name}+amsgrad"
    return name
