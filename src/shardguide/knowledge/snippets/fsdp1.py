"""The FSDP1 equivalent: ``FullyShardedDataParallel`` with the strategy, wrapping and policies that the plan chose for FSDP2.

Sources, all in PyTorch 2.13.0: torch/distributed/fsdp/api.py (ShardingStrategy, MixedPrecision, CPUOffload), the docstring of
FullyShardedDataParallel (sync_module_states, param_init_fn, device_mesh), torch/distributed/fsdp/wrap.py.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet

from . import loop
from .record import verified
from .spec import TrainingSpec, check
from .text import Imports, call, dtype, names_match, repeats

KIND = "fsdp1"


def render(spec: TrainingSpec) -> Snippet:
    """The snippet ``fsdp1``. Raises UnusableInput for what FSDP1 cannot express."""
    release = check(spec)
    _refuse(spec, release)
    imports = Imports()
    imports.module("torch")
    title = f"FSDP1 training of {spec.architecture or 'your model'} with PyTorch {spec.release}, {strategy(spec)}."
    step = loop.Step(no_sync="context", clip="model.clip_grad_norm_(CLIP_NORM)")
    functions = [
        _build_model(spec, imports),
        _wrap(spec, release, imports),
        loop.build_optimizer(spec, imports),
        loop.load_batches(spec),
        loop.train_step(spec, step, imports),
        _train(spec, release, imports),
        loop.main(spec, imports),
    ]
    code = loop.assemble(title, imports, loop.constants(spec), *functions)
    return Snippet(KIND, "FSDP1 training code", "python", code, verified(KIND, features(spec), spec.release))


def features(spec: TrainingSpec) -> list[str]:
    """Which form of each part the snippet has; the record of what was executed is kept by these (see record.py)."""
    release = check(spec)
    owner = "own" if not spec.architecture else spec.implementation
    mesh = "none" if strategy(spec) in ("FULL_SHARD", "SHARD_GRAD_OP") else "mesh" if release >= (2, 2) else "node"
    ignored = "none" if not spec.ignored else "states" if release >= (2, 1) else "parameters"
    return [
        f"model={owner}-{'meta' if _meta(spec) else 'real'}",
        f"strategy={strategy(spec)}",
        f"mesh={mesh}",
        f"wrapping={'units' if spec.units else 'own'}",
        f"offload={'cpu' if spec.offload else 'none'}",
        f"ignored={ignored}",
        f"checkpointing={'on' if spec.activation_checkpointing else 'off'}",
        f"weights={spec.weights if spec.architecture else 'own'}",
        *loop.features(spec),
    ]


def strategy(spec: TrainingSpec) -> str:
    """The ShardingStrategy that does what the mesh and reshard_after_forward of the blocks say."""
    keep = dict(spec.reshard_after_forward).get("block") is False
    hybrid = dict(spec.mesh).get("replicate", 1) > 1
    if hybrid:
        return "_HYBRID_SHARD_ZERO2" if keep else "HYBRID_SHARD"
    return "SHARD_GRAD_OP" if keep else "FULL_SHARD"


def _refuse(spec: TrainingSpec, release: tuple[int, int]) -> None:
    if any(name == "tp" for name, _ in spec.mesh):
        raise UnusableInput("FSDP1 code with tensor parallelism is not offered; fully_shard composes with it.")
    if any(type(value) is int for _, value in spec.reshard_after_forward):
        raise UnusableInput("FSDP1 cannot reshard to a smaller number of ranks after forward; that is fully_shard's.")
    if spec.weights == "dcp":
        raise UnusableInput(
            "loading a distributed checkpoint is not offered for FSDP1; use weights random or pretrained."
        )
    if spec.optimizer == "muon":
        raise UnusableInput("Muon needs whole matrices, and FSDP1 shards flattened parameters; use fully_shard.")
    if spec.offload and spec.device_type == "cpu":
        raise UnusableInput(
            "FSDP1's CPU offload pins memory, which needs an accelerator; without one there is nothing to offload."
        )
    if spec.offload and spec.accumulation > 1 and not spec.accumulation_no_sync:
        raise UnusableInput("FSDP1 does not accumulate gradients outside no_sync() when it offloads to the CPU.")


def _meta(spec: TrainingSpec) -> bool:
    """Whether rank 0 alone builds real weights.

    Not with tied weights (to_empty, module by module, would untie them on the others), not on the CPU, where
    sync_module_states raises, and not with 2.0, whose to_empty always recurses.
    """
    return spec.meta_init and not spec.tied and spec.device_type != "cpu" and check(spec) >= (2, 1)


def _build_model(spec: TrainingSpec, imports: Imports) -> list[str]:
    if not _meta(spec):
        return loop.build_model(spec, imports, meta=False)
    if not spec.architecture:
        return [
            "def build_model():",
            '    """Yours: your torch.nn.Module, real on rank 0 and built under torch.device("meta") on the others."""',
            '    raise NotImplementedError("build_model is yours to write")',
        ]
    imports.name("transformers", "AutoConfig", spec.architecture)
    imports.module("torch.distributed as dist")
    create = f"{spec.architecture}(config)"
    real = create
    if spec.weights == "pretrained":
        keyword = "dtype" if spec.implementation != "transformers4" else "torch_dtype"
        real = f"{spec.architecture}.from_pretrained(MODEL, config=config, {keyword}={dtype(spec.param_dtype)})"
    body = [
        "config = AutoConfig.from_pretrained(MODEL)",
        "config.use_cache = False  # the key-value cache is for generation",
    ]
    if spec.param_dtype != "float32":
        body.append(f"torch.set_default_dtype({dtype(spec.param_dtype)})  # sharded parameters keep this dtype")
    body += [
        "if dist.get_rank() == 0:  # real weights in host memory; sync_module_states sends them to the others",
        f"    model = {real}",
        "else:",
        '    with torch.device("meta"):  # shapes only',
        f"        model = {create}",
    ]
    if spec.param_dtype != "float32":
        body.append("torch.set_default_dtype(torch.float32)")
    return ["def build_model():", *(f"    {line}" for line in body), "    return model"]


def _wrap(spec: TrainingSpec, release: tuple[int, int], imports: Imports) -> list[str]:
    fsdp = "torch.distributed.fsdp"
    imports.name(fsdp, "FullyShardedDataParallel", "ShardingStrategy")
    imports.name("torch.distributed.fsdp.wrap", "transformer_auto_wrap_policy")
    imports.name("functools", "partial")
    hybrid = "HYBRID" in strategy(spec)
    body = loop.freeze(spec, imports)
    sources = []
    for repeat in repeats(spec.units)[0]:
        if any(not inner for inner, _ in repeat.parts):
            sources.append(f"{{type(layer) {repeat.head('layer').removesuffix(':')}}}")
    body.append(f"classes = {' | '.join(sources) or '{type(block) for block in blocks(model)}'}")
    arguments = [f"sharding_strategy=ShardingStrategy.{strategy(spec)}"]
    if hybrid and release >= (2, 2):
        arguments.append("device_mesh=mesh")
    arguments.append("auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)")
    fields = [
        f"param_dtype={dtype(spec.mp_param)}" if spec.mp_param else "",
        f"reduce_dtype={dtype(spec.mp_reduce)}" if spec.mp_reduce else "",
    ]
    if any(fields):
        fields.append("cast_forward_inputs=True" if spec.mp_cast_inputs else "")  # fully_shard's default, not FSDP1's
        imports.name(fsdp, "MixedPrecision")
        body.append(f"mixed_precision = {call('MixedPrecision', *fields)}")
        arguments.append("mixed_precision=mixed_precision")
    if spec.offload:
        imports.name(fsdp, "CPUOffload")
        arguments.append("cpu_offload=CPUOffload(offload_params=True)")
    if spec.ignored:
        imports.name("fnmatch", "fnmatchcase")
        body.append(f"ignored = [p for name, p in model.named_parameters() if {names_match(spec.ignored)}]")
        arguments.append("ignored_states=ignored" if release >= (2, 1) else "ignored_parameters=ignored")
    arguments += ["device_id=device", "use_orig_params=True  # the optimizer sees the model's own parameters"]
    if _meta(spec):
        imports.module("torch.distributed as dist")
        arguments.append("sync_module_states=True  # rank 0's parameters and buffers, to every rank")
        allocate = "(lambda module: module.to_empty(device=device, recurse=False))"
        arguments.append(f"param_init_fn={allocate} if dist.get_rank() else None")
    body += ["model = FullyShardedDataParallel(", "    model,"]
    for argument in arguments:
        text, mark, comment = argument.partition("  # ")
        body.append(f"    {text},{mark}{comment}")
    body.append(")")
    if spec.activation_checkpointing:
        imports.name(
            "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
            "apply_activation_checkpointing",
            "checkpoint_wrapper",
        )
        body += [
            "apply_activation_checkpointing(  # inside each FSDP unit: after wrapping",
            "    model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: type(module) in classes",
            ")",
        ]
    mesh = ", mesh" if hybrid and release >= (2, 2) else ""
    lines = [
        f"def wrap(model, device{mesh}):",
        '    """One flat parameter for each layer, and one for what is left."""',
        *(f"    {line}" if line else "" for line in body),
        "    return model",
    ]
    return lines if spec.units else [*loop.blocks_placeholder(), *lines]


def _train(spec: TrainingSpec, release: tuple[int, int], imports: Imports) -> list[str]:
    body: list[str] = []
    mesh = ""
    if "HYBRID" in strategy(spec):
        if release >= (2, 2):
            imports.name("torch.distributed.device_mesh", "init_device_mesh")
            names = ", ".join(f'"{name}"' for name, _ in spec.mesh)
            sizes = ", ".join(str(size) for _, size in spec.mesh)
            body.append(f'mesh = init_device_mesh("{spec.device_type}", ({sizes}), mesh_dim_names=({names}))')
            mesh = ", mesh"
        else:
            body.append("# Without a device mesh (it came with 2.2), the strategy shards inside each node.")
    body.append(f"model = wrap(build_model(), device{mesh})")
    scaler = "ShardedGradScaler()"
    if loop.scales(spec):
        imports.name("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler")
        if spec.device_type != "cuda":
            scaler = f'ShardedGradScaler("{spec.device_type}")'
    body += loop.train_lines(spec, imports, scaler, "dist.get_rank()", "dist.get_world_size()")
    return ["def train(device):", *(f"    {line}" for line in body)]
