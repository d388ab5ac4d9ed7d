"""The plan as a configuration of accelerate or torchtitan, which do the sharding themselves.

Where such a framework does something else than the plan, the file says so in a comment: both have fewer knobs than fully_shard.

Sources: accelerate 1.15.0 (commands/config/config_args.py, commands/launch.py, utils/constants.py, utils/dataclasses.py,
utils/fsdp_utils.py, parallelism_config.py); torchtitan at v0.2.2 (2026-02-20, torchtitan/config/job_config.py: the last form
with TOML files) and at commit b5bcd76 (2026-08-21, torchtitan/config/README.md and configs.py, distributed/fsdp.py and
activation_checkpoint.py; TOML files went on 2026-02-23, configurations are Python functions).
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput

from .spec import LaunchSpec, TrainingSpec, identifier, version


def _sizes(spec: TrainingSpec) -> tuple[int, int, int]:
    sizes = dict(spec.mesh)
    return sizes.get("replicate", 1), sizes.get("shard", 1), sizes.get("tp", 1)


def _block_reshard(spec: TrainingSpec) -> bool:
    value = dict(spec.reshard_after_forward).get("block", True)
    if type(value) is int:
        raise UnusableInput(
            "neither accelerate nor torchtitan can reshard to a smaller number of ranks; use the FSDP2 code."
        )
    return bool(value)


def _check_world(launch: LaunchSpec, framework: str) -> None:
    """Both frameworks stop at the start when the mesh and the processes differ."""
    replicate, shard, tp = _sizes(launch.training)
    mesh, world = replicate * shard * tp, launch.nodes * launch.per_node
    if mesh != world:
        raise UnusableInput(f"{framework} refuses a mesh of {mesh} ranks for a launch of {world} processes.")


def unsharded(spec: TrainingSpec) -> bool:
    """Whether the plan is plain data parallelism: accelerate then takes DDP, since its FSDP refuses one shard."""
    _, shard, tp = _sizes(spec)
    return shard == 1 and tp == 1


def accelerate(launch: LaunchSpec) -> str:
    """A YAML for ``accelerate launch --config_file``: FSDP2, or DDP for a plan that shards nothing."""
    spec = launch.training
    if launch.device_type == "cpu":
        raise UnusableInput("accelerate's configuration is shown for accelerators; on the CPU use the code itself.")
    _check_world(launch, "accelerate")
    mixed = {"bfloat16": "bf16", "float16": "fp16"}.get(spec.mp_param, "no")
    if unsharded(spec):
        kind, comments, section = _accelerate_ddp(launch, mixed)
    else:
        kind, comments, section = _accelerate_fsdp(launch, mixed)
    lines = [
        "# accelerate 1.15: accelerate launch --config_file THIS_FILE train.py",
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {kind}",
        *comments,
        f"mixed_precision: '{mixed}'",
        f"num_machines: {launch.nodes}",
        f"num_processes: {launch.nodes * launch.per_node}",
    ]
    if launch.nodes > 1:
        lines += [
            "# On the command line of each node: --machine_rank, --main_process_ip and --main_process_port.",
            "rdzv_backend: static",
        ]
    return "\n".join([*lines, "main_training_function: main", *section, ""])


def _accelerate_ddp(launch: LaunchSpec, mixed: str) -> tuple[str, list[str], list[str]]:
    """Type, comments on the precision, and section for DDP, which has no section."""
    spec = launch.training
    if spec.offload:
        raise UnusableInput("accelerate offloads to the CPU only what it shards; use the code itself.")
    kind = "MULTI_XPU" if launch.device_type == "xpu" else "MULTI_GPU"
    if launch.nodes * launch.per_node == 1:
        kind = "'NO'"  # quoted: YAML reads a bare NO as false
    comments = []
    if mixed != "no":
        comments.append(
            f"# Means autocast to {mixed}: parameters and gradients keep the type that the model is built in."
        )
    section = []
    if spec.activation_checkpointing:
        section.append(
            "# Not expressible here: activation checkpointing. Turn it on in code, where the model is built."
        )
    return kind, comments, section


def _accelerate_fsdp(launch: LaunchSpec, mixed: str) -> tuple[str, list[str], list[str]]:
    """Type, comments on the precision, and section for FSDP2."""
    spec = launch.training
    if min(version(launch.release), version(spec.release)) < (2, 6):
        raise UnusableInput("accelerate's FSDP2 needs PyTorch 2.6; use the FSDP2 code before.")
    replicate, shard, tp = _sizes(spec)
    if shard == 1:
        raise UnusableInput("accelerate's FSDP refuses a mesh with one shard, also beside tensor parallelism.")
    classes = sorted(
        {name for unit in spec.units if unit.role == "block" for name in unit.module_class.split("+")} - {""}
    )
    comments = []
    if mixed != "no":
        comments.append(
            f"# Means {mixed} for parameters, reduction and output alike; pass a MixedPrecisionPolicy in code to differ."
        )
        if spec.param_dtype != "float32":
            comments += [
                "# Not expressible with it: parameters kept in bfloat16. accelerate upcasts trainable parameters to float32",
                "# when mixed_precision is not 'no'; the optimizer's state then takes float32's memory, twice the plan's.",
            ]
    section = [
        "fsdp_config:",
        "  fsdp_version: 2",
        f"  fsdp_reshard_after_forward: {str(_block_reshard(spec)).lower()}",
        f"  fsdp_offload_params: {str(bool(spec.offload)).lower()}",
        f"  fsdp_activation_checkpointing: {str(spec.activation_checkpointing).lower()}",
        f"  fsdp_cpu_ram_efficient_loading: {str(spec.weights == 'pretrained').lower()}",
        "  fsdp_state_dict_type: SHARDED_STATE_DICT",
    ]
    if classes:
        section += [
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            f"  fsdp_transformer_layer_cls_to_wrap: {','.join(identifier(name, 'the layer class') for name in classes)}",
        ]
    else:
        section.append(
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # of the classes in the model's _no_split_modules"
        )
    if spec.placements:
        section.append("# Not expressible here: shard placements. accelerate shards every parameter on dimension 0.")
    if replicate > 1 or tp > 1:
        section += [
            "parallelism_config:",
            f"  parallelism_config_dp_replicate_size: {replicate}",
            f"  parallelism_config_dp_shard_size: {shard}",
            f"  parallelism_config_tp_size: {tp}",
        ]
    return "FSDP", comments, section


def _titan_reshard(spec: TrainingSpec) -> str:
    """Its policy: "always" reshards the layers and the last group (norm and head), "default" the layers alone, "never" neither."""
    block = _block_reshard(spec)
    head = dict(spec.reshard_after_forward).get("head", block)
    if block:
        return "always" if head else "default"
    if head:
        raise UnusableInput("torchtitan cannot reshard the head and not the layers; use the FSDP2 code.")
    return "never"


def _titan(launch: LaunchSpec) -> list[tuple[str, str, str]]:
    """(section, field, value as Python and TOML both write it) that the two forms of torchtitan have in common."""
    spec = launch.training
    _check_world(launch, "torchtitan")
    if spec.mp_param == "float16":
        raise UnusableInput("torchtitan trains in bfloat16 or float32, not in float16.")
    if spec.mp_reduce not in ("", "float32"):
        raise UnusableInput("torchtitan reduces gradients in float32 only.")
    replicate, shard, tp = _sizes(spec)
    fields = [
        ("parallelism", "data_parallel_replicate_degree", str(replicate)),
        ("parallelism", "data_parallel_shard_degree", str(shard)),
        ("parallelism", "tensor_parallel_degree", str(tp)),
        ("parallelism", "fsdp_reshard_after_forward", f'"{_titan_reshard(spec)}"'),
        ("training", "dtype", f'"{spec.param_dtype}"'),
        ("training", "mixed_precision_param", f'"{spec.mp_param or "float32"}"'),
        ("training", "mixed_precision_reduce", '"float32"'),
    ]
    if spec.clip_norm is not None:
        fields.append(("training", "max_norm", repr(float(spec.clip_norm))))
    return fields


def torchtitan(launch: LaunchSpec) -> str:
    """A Python configuration, as torchtitan's main branch has them since 2026-02-23."""
    spec = launch.training
    base = launch.torchtitan_base
    if base:
        module, _, function = base.partition(".")
        identifier(module, "the torchtitan model")
        identifier(function, "the torchtitan configuration")
        start = [f"from torchtitan.models.{module}.config_registry import {function} as base"]
    else:
        start = [
            "# Yours: the shipped configuration of your model, e.g. llama3_8b of torchtitan.models.llama3.config_registry"
        ]
        start.append("from my_configs import my_model as base")
    checkpointing = ["    config.activation_checkpoint = None  # off: without this the configurations have SelectiveAC"]
    imports = []
    if spec.activation_checkpointing:
        imports = ["from torchtitan.distributed.activation_checkpoint import FullAC"]
        checkpointing = ["    config.activation_checkpoint = FullAC.Config()"]
    import_lines = sorted([*imports, "from torchtitan.trainer import Trainer"])
    if base:
        import_lines = sorted([*import_lines, *start])
        start = []
    else:
        import_lines = [*start[1:], *import_lines]
        start = start[:1]
    world = launch.nodes * launch.per_node
    lines = [
        f'"""torchtitan (main, August 2026), {world} processes: torchrun ... -m torchtitan.train --module THIS --config plan."""',
        "",
        *start,
        *import_lines,
        "",
        "",
        "def plan() -> Trainer.Config:",
        "    config = base()",
        *(f"    config.{section}.{field} = {value}" for section, field, value in _titan(launch)),
        f"    config.training.enable_cpu_offload = {bool(spec.offload)}",
        *checkpointing,
        "    return config",
        "",
    ]
    return "\n".join(lines)


def torchtitan_toml(launch: LaunchSpec) -> str:
    """A TOML file for torchtitan v0.2.2, the last release that reads one: only what the plan decides."""
    spec = launch.training
    lines = [
        "# torchtitan v0.2.2: merge into the train_config of your model, run with --job.config_file THIS_FILE.",
        "# Later versions take Python configurations instead.",
    ]
    current = ""
    fields = _titan(launch)
    fields.append(("training", "enable_cpu_offload", str(bool(spec.offload)).lower()))
    fields.append(("activation_checkpoint", "mode", '"full"' if spec.activation_checkpointing else '"none"'))
    for section, field, value in fields:
        if section != current:
            lines += ["", f"[{section}]"]
            current = section
        lines.append(f"{field} = {value}")
    return "\n".join([*lines, ""])
