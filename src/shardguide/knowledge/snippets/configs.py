"""Configurations of frameworks that do the sharding themselves: accelerate's YAML, torchtitan's flags and TOML.

What such a file cannot say is a comment in it; what would change the plan's meaning is refused.

Sources: accelerate 1.15.0 (commands/launch.py, utils/launch.py, utils/dataclasses.py, utils/fsdp_utils.py, parallelism_config.py);
torchtitan at the commits below (torchtitan/config/configs.py, torchtitan/distributed/fsdp.py; torchtitan/config/job_config.py).
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet, Verified

from .spec import LaunchSpec, TrainingSpec, identifier, version
from .spec import check as check_training

ACCELERATE = "1.15"
TITAN_COMMIT = "b5bcd76c66d0acb1a08b176d9639425bc55e0b2a"  # 2026-08-21
TITAN_TOML = ("0.2.2", "73a0e6979dd10b6b1904098eb3c8f62c18ab87ce")  # 2026-02-20, the last release with TOML files


def render(kind: str, spec: LaunchSpec) -> Snippet:
    """The file ``kind``; called by launch.render, which checked the rest of ``spec``. Raises UnusableInput."""
    training = spec.training
    check_training(training)
    if spec.device_type == "cpu":
        raise UnusableInput(f"no {kind} configuration is offered for CPU training; use the training code itself.")
    sizes = {"replicate": 1, "shard": 1, "tp": 1, **dict(training.mesh)}
    if sizes["replicate"] * sizes["shard"] * sizes["tp"] != spec.nodes * spec.per_node:
        raise UnusableInput("the mesh and the number of processes to start do not agree.")
    if kind == "accelerate":
        return _accelerate(spec, training, sizes)
    return _torchtitan(spec, training, sizes, toml=kind == "torchtitan-toml")


def _accelerate(spec: LaunchSpec, training: TrainingSpec, sizes: dict[str, int]) -> Snippet:
    sharded = sizes["shard"] > 1
    if sharded and version(training.release) < (2, 6):
        raise UnusableInput(f"accelerate's FSDP2 needs PyTorch 2.6; {training.release} is older.")
    if not sharded and sizes["tp"] > 1:
        raise UnusableInput("no accelerate configuration is offered for tensor parallelism without sharding.")
    start = "accelerate launch --config_file FILE"
    if spec.nodes > 1:
        start += " --machine_rank RANK --main_process_ip HOST --main_process_port 29500"
    lines = [
        f"# accelerate {ACCELERATE}: {start} {spec.script}",
        *(["# Run it on every node: RANK is 0 on the node HOST, then 1, 2, ..."] if spec.nodes > 1 else []),
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {'FSDP' if sharded else 'MULTI_' + ('XPU' if spec.device_type == 'xpu' else 'GPU')}",
        f"num_machines: {spec.nodes}",
        "machine_rank: 0",
        *(["same_network: true"] if spec.nodes > 1 else []),
        f"num_processes: {spec.nodes * spec.per_node}  # on all nodes together",
        *_precision(training, sharded),
    ]
    if sharded:
        lines += _fsdp(training)
        if sizes["replicate"] > 1 or sizes["tp"] > 1:
            lines.append("parallelism_config:")
            lines += [
                f"  parallelism_config_{key}: {sizes[name]}"
                for key, name in (("dp_replicate_size", "replicate"), ("dp_shard_size", "shard"), ("tp_size", "tp"))
            ]
    lines += [f"# {note}" for note in _accelerate_notes(training, sizes)]
    verified = Verified(
        True, version(training.release) <= (2, 15), f"read by accelerate {ACCELERATE}.0 with PyTorch 2.13.0"
    )
    return Snippet("accelerate", "accelerate configuration", "yaml", "\n".join([*lines, ""]), verified)


def _precision(training: TrainingSpec, sharded: bool) -> list[str]:
    """``mixed_precision``, which sets param_dtype, reduce_dtype and output_dtype alike, and what differs from that."""
    short = {"bfloat16": "bf16", "float16": "fp16"}.get(training.mp_param, "no")
    if sharded and training.param_dtype == "bfloat16" and short == "bf16":
        short = "no"  # accelerate would keep the parameters in float32 otherwise
    lines = [f'mixed_precision: "{short}"']
    wanted = (
        training.mp_param or training.param_dtype,
        training.mp_reduce or training.mp_param or training.param_dtype,
    )
    given = {"bf16": "bfloat16", "fp16": "float16", "no": training.param_dtype}[short]
    if sharded and (wanted != (given, given) or training.mp_output not in ("", given)):
        fields = [
            ("param_dtype", training.mp_param),
            ("reduce_dtype", training.mp_reduce),
            ("output_dtype", training.mp_output),
        ]
        policy = ", ".join(f"{name}=torch.{value}" for name, value in fields if value)
        lines += [
            f"# This reduces gradients in {given}. The plan's dtypes need, in the script:",
            "#   plugin = FullyShardedDataParallelPlugin(",
            f"#       fsdp_version=2, mixed_precision_policy=MixedPrecisionPolicy({policy}))",
            "#   accelerator = Accelerator(fsdp_plugin=plugin)  # the rest still comes from this file",
        ]
    return lines


def _fsdp(training: TrainingSpec) -> list[str]:
    classes: list[str] = []
    for unit in training.units:
        if unit.role == "block" and len(unit.modules) == 1:
            name = identifier(unit.module_class, "the module class") if unit.module_class else ""
            if name and name not in classes:
                classes.append(name)
    wrap = f"  fsdp_transformer_layer_cls_to_wrap: {','.join(classes)}"
    if not classes and training.architecture:
        wrap = "  # the layers to wrap are the model's _no_split_modules"
    elif not classes:
        wrap = (
            "  fsdp_transformer_layer_cls_to_wrap: YOUR_LAYER  # Yours: class names of the repeated layers, with commas"
        )
    reshard = dict(training.reshard_after_forward)
    pretrained = training.weights == "pretrained"
    return [
        "fsdp_config:",
        "  fsdp_version: 2",
        f"  fsdp_reshard_after_forward: {'false' if reshard.get('block', True) is False else 'true'}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        wrap,
        f"  fsdp_offload_params: {_yes(bool(training.offload))}",
        f"  fsdp_activation_checkpointing: {_yes(training.activation_checkpointing)}",
        f"  fsdp_cpu_ram_efficient_loading: {_yes(pretrained)}"
        + ("  # rank 0 reads the weights, the others receive theirs" if pretrained else ""),
        "  fsdp_state_dict_type: SHARDED_STATE_DICT",
    ]


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _accelerate_notes(training: TrainingSpec, sizes: dict[str, int]) -> list[str]:
    """What the plan says and this file cannot."""
    notes = []
    if sizes["shard"] > 1:
        reshard = dict(training.reshard_after_forward)
        numbers = sorted({value for value in reshard.values() if type(value) is int})
        if numbers:
            notes.append(
                f"Not expressible: reshard_after_forward={numbers[0]}; true is set, which gathers over all shards."
            )
        block = reshard.get("block", True) is not False
        differs = [
            role
            for role, value in (("embedding", block), ("head", False), ("root", False))
            if role in reshard and bool(reshard[role]) is not value
        ]
        if differs:
            notes.append(
                f"Not expressible: the plan's reshard_after_forward of the {' and the '.join(differs)}; accelerate leaves "
                "final norm, head and root unsharded after forward and treats the embedding as the layers."
            )
        if training.placements:
            notes.append("Not expressible: shard_placement_fn; every parameter is sharded on dimension 0.")
        if training.offload == "pageable":
            notes.append("Not expressible: offload without pinned memory; accelerate pins it.")
        if training.ignored:
            notes.append(
                f"Not expressible: parameters by name; fsdp_ignored_modules takes modules ({', '.join(training.ignored)})."
            )
    if sizes["tp"] > 1:
        notes.append(
            'The model has to be loaded with tensor parallelism of the same size: from_pretrained(..., tp_plan="auto").'
        )
    if training.accumulation > 1:
        notes.append(f"In the script: Accelerator(gradient_accumulation_steps={training.accumulation}).")
    return notes


def _torchtitan(spec: LaunchSpec, training: TrainingSpec, sizes: dict[str, int], *, toml: bool) -> Snippet:
    from .launch import by_hand

    if training.mp_param == "float16":
        raise UnusableInput("torchtitan trains in bfloat16 or float32; it has no gradient scaling for float16.")
    kind = "torchtitan-toml" if toml else "torchtitan"
    module, name = _base(spec.torchtitan_base)
    sections = _titan_values(training, sizes)
    notes = _titan_notes(training)
    verified = Verified(True, version(training.release) <= (2, 15), "")
    if toml:
        release, commit = TITAN_TOML
        sections["activation_checkpoint"] = {"mode": "full" if training.activation_checkpointing else "none"}
        flavor = _flavor(module, name)
        lines = [
            f"# torchtitan {release} (commit {commit[:12]}), the last release with TOML files: python -m torchtitan.train",
            "# --job.config_file FILE under torchrun. Data, learning rate and steps are not set here.",
            "[model]",
            f'name = "{module}"' if module else 'name = ""  # Yours: a model of torchtitan, such as llama3',
            f'flavor = "{flavor}"' if flavor else 'flavor = ""  # Yours: its size, such as 8B',
        ]
        for section, values in sections.items():
            lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
        lines += [f"# {note}" for note in notes]
        return Snippet(kind, "torchtitan configuration (TOML)", "toml", "\n".join([*lines, ""]), verified)
    words = ["-m torchtitan.train"]
    if module:
        words.append(f"--module {module} --config {name}")
    else:
        words.append('--module "$TITAN_MODULE" --config "$TITAN_CONFIG"')
    for section, values in sections.items():
        for key, value in values.items():
            words.append(_flag(section, key, value))
    words.append("activation_checkpoint:full" if training.activation_checkpointing else "activation_checkpoint:none")
    head = [
        f"torchtitan at commit {TITAN_COMMIT[:12]}. These flags work there, and its README wants to replace them by a Python",
        "function that returns the same configuration (torchtitan/config/README.md).",
        *notes,
    ]
    lines = by_hand(spec, words, tuple(head))
    if not module:
        lines[2:2] = [
            ': "${TITAN_MODULE:?the torchtitan module with the configurations of your model, such as llama3}"',
            ': "${TITAN_CONFIG:?the configuration to start from, such as llama3_8b}"',
        ]
    return Snippet(kind, "torchtitan command", "bash", "\n".join([*lines, ""]), verified)


def _base(text: str) -> tuple[str, str]:
    """``("llama3", "llama3_8b")`` of ``llama3.llama3_8b``."""
    if not text:
        return "", ""
    module, _, name = text.rpartition(".")
    if not module:
        raise UnusableInput(f"{text[:60]!r} is not a torchtitan configuration; use a form like llama3.llama3_8b.")
    for part in (*module.split("."), name):
        identifier(part, "the torchtitan configuration")
    return module, name


def _flavor(module: str, name: str) -> str:
    """The flavor that a configuration function is named after: 8B of llama3_8b, 0.6B of qwen3_0_6b; "" if unclear."""
    size = name[len(module) + 1 :] if name.startswith(f"{module}_") else ""
    plain = size[-1:] == "b" and size[:-1].replace("_", "", 1).isdigit() and size[:1].isdigit()
    return size.replace("_", ".").upper() if plain and not size.endswith("_b") else ""


def _titan_values(training: TrainingSpec, sizes: dict[str, int]) -> dict[str, dict[str, object]]:
    reshard = dict(training.reshard_after_forward)
    policy = "default"  # layers are resharded, final norm and head are not
    if reshard.get("block", True) is False:
        policy = "never"
    elif any(unit.role == "head" for unit in training.units) and reshard.get("head", True) is not False:
        policy = "always"
    values: dict[str, object] = {
        "dtype": training.param_dtype,
        "mixed_precision_param": training.mp_param or training.param_dtype,
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": bool(training.offload),
    }
    if training.clip_norm is not None:
        values["max_norm"] = float(training.clip_norm)
    return {
        "training": values,
        "parallelism": {
            "data_parallel_replicate_degree": sizes["replicate"],
            "data_parallel_shard_degree": sizes["shard"],
            "tensor_parallel_degree": sizes["tp"],
            "fsdp_reshard_after_forward": policy,
        },
    }


def _titan_notes(training: TrainingSpec) -> list[str]:
    notes = []
    if training.mp_reduce and training.mp_reduce != "float32":
        notes.append(f"Not expressible: reduction in {training.mp_reduce}; torchtitan reduces in float32.")
    if any(type(value) is int for _, value in training.reshard_after_forward):
        notes.append(
            "Not expressible: reshard_after_forward as a number of ranks; layers are resharded to all of them."
        )
    if training.placements:
        notes.append("Not expressible: other shard dimensions; torchtitan chooses them for experts by itself.")
    if training.offload == "pageable":
        notes.append("Not expressible: offload without pinned memory; torchtitan pins it.")
    if training.ignored or training.frozen:
        notes.append("Not expressible: ignored or frozen parameters; torchtitan's models train all of theirs.")
    if training.clip_norm is None:
        notes.append("Not set: max_norm; torchtitan clips to its own default of 1.0.")
    if training.optimizer not in ("adamw", ""):
        notes.append(
            f"Not set: the optimizer; torchtitan's configurations train with AdamW, the plan says {training.optimizer}."
        )
    if training.accumulation > 1:
        notes.append(
            f"Not set: {training.accumulation} micro-batches per step; they follow from torchtitan's global batch size."
        )
    return notes


def _flag(section: str, key: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{section}.{key}" if value else f"--{section}.no-{key.replace('_', '-')}"
    return f"--{section}.{key} {value}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return _yes(value)
    return f'"{value}"' if isinstance(value, str) else str(value)
