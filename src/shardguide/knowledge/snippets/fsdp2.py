"""The FSDP2 code for one model: ``fully_shard`` on its own layers, and the loop around it.

Sources, all in PyTorch 2.13.0: docstring of torch.distributed.fsdp.fully_shard (call bottom-up; reshard_after_forward; 2-D mesh),
MixedPrecisionPolicy, CPUOffloadPolicy; torch/distributed/tensor/_random.py (which meshes draw random numbers for shards);
torch/distributed/fsdp/_fully_shard/_fsdp_param.py (a non-zero shard dimension must divide evenly).
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Unit
from shardguide.guidance.record import Snippet

from . import loop, weights
from .record import verified
from .spec import TrainingSpec, check, path, pattern
from .text import Imports, Repeat, call, dtype, names_match, repeats

KIND = "fsdp2"
_LAYER = "layer"


def render(spec: TrainingSpec) -> Snippet:
    """The snippet ``fsdp2``. Raises UnusableInput for a combination that the release does not have."""
    release = check(spec, minimum=(2, 3))
    _refuse(spec, release)
    imports = Imports()
    imports.module("torch")
    sizes = " x ".join(f"{name} {size}" for name, size in spec.mesh)
    title = f"FSDP2 training of {spec.architecture or 'your model'} with PyTorch {spec.release}, mesh {sizes}."
    step = loop.Step(no_sync="method", full=".full_tensor()")
    if _tensor_parallel(spec):
        step = loop.Step(no_sync="method", clip="clip_grad_norm(model, CLIP_NORM)")
    functions = [
        loop.build_model(spec, imports, meta=spec.meta_init),
        _shard(spec, release, imports),
        weights.initialise(spec),
        weights.load(spec, imports),
        weights.place_buffers(spec),
        weights.place_ignored(spec, imports),
        _by_mesh(spec),
        loop.build_optimizer(spec, imports, per_mesh=_tensor_parallel(spec)),
        loop.load_batches(spec),
        loop.train_step(spec, step, imports),
        _train(spec, imports),
        loop.main(spec, imports),
    ]
    constants = loop.constants(spec)
    if spec.weights == "dcp":
        constants.append('CHECKPOINT = "path/to/checkpoint"  # Yours: a folder that torch.distributed.checkpoint wrote')
    code = loop.assemble(title, imports, constants, *functions)
    return Snippet(KIND, "FSDP2 training code", "python", code, verified(KIND, features(spec), spec.release))


def features(spec: TrainingSpec) -> list[str]:
    """Which form of each part the snippet has; the record of what was executed is kept by these (see record.py)."""
    _, others = repeats(spec.units)
    groups = "own" if not spec.units else "list" if any(len(unit.modules) > 1 for unit in others) else "single"
    reshards = {type(value).__name__ for _, value in spec.reshard_after_forward}
    owner = "own" if not spec.architecture else spec.implementation
    return [
        f"import={'composable' if check(spec) < (2, 6) else 'public'}",
        f"model={owner}-{'meta' if spec.meta_init else 'real'}",
        f"wrapping={groups}",
        f"mesh={'+'.join(name for name, _ in spec.mesh)}",
        f"reshard={'int' if 'int' in reshards else 'bool' if reshards else 'default'}",
        f"offload={'cpu' if spec.offload else 'none'}",
        f"placement={'dims' if spec.placements else 'none'}",
        f"ignored={'some' if spec.ignored else 'none'}",
        f"checkpointing={'on' if spec.activation_checkpointing else 'off'}",
        f"weights={spec.weights}",
        *loop.features(spec),
    ]


def _tensor_parallel(spec: TrainingSpec) -> bool:
    return any(name == "tp" for name, _ in spec.mesh)


def _refuse(spec: TrainingSpec, release: tuple[int, int]) -> None:
    """What a release of fully_shard lacks (first releases: the API index), and what does not go together."""
    since = [
        (bool(spec.offload), (2, 4), "offload_policy"),
        (bool(spec.placements), (2, 6), "shard_placement_fn"),
        (bool(spec.ignored), (2, 7), "ignored_params"),
        (_tensor_parallel(spec), (2, 6), "this form of tensor parallelism with fully_shard"),
        (spec.weights == "pretrained" and spec.meta_init, (2, 5), "loading a full checkpoint by broadcast"),
    ]
    for used, first, what in since:
        if used and release < first:
            raise UnusableInput(f"{what} came with PyTorch {first[0]}.{first[1]}; {spec.release} does not have it.")
    partial = any(type(value) is int for _, value in spec.reshard_after_forward)
    if partial and spec.placements:  # IndexError in foreach_all_gather_copy_out, run with 2.13.0
        raise UnusableInput(
            "resharding to fewer ranks fails in backward when a parameter is not sharded on dimension 0 (IndexError)."
        )
    if _tensor_parallel(spec):
        if not spec.tp_plan:
            raise UnusableInput(
                "a mesh with a tp dimension needs a tensor-parallel plan: which modules, colwise or rowwise."
            )
        local = spec.device_type == "cpu" or bool(spec.offload)
        for what, used in (
            ("fp16 gradient scaling", loop.scales(spec)),
            ("Muon", spec.optimizer == "muon"),
            ("ignoring parameters", bool(spec.ignored)),
            ("resharding to fewer ranks", partial),  # NotImplementedError: not supported for DTensor parameters
            # Every rank would draw its own numbers, also for what the tensor-parallel ranks share.
            ("drawing random weights on the CPU", local and spec.meta_init and spec.weights == "random"),
        ):
            if used:
                raise UnusableInput(
                    f"{what} is not offered together with tensor parallelism: no run has shown it to work."
                )
    shared = spec.implementation == "transformers4" and any(len(names) > 2 for names in spec.tied)
    if spec.weights == "pretrained" and spec.meta_init and shared:  # "Missing key(s) in state_dict", run with 2.13.0
        raise UnusableInput(
            "set_model_state_dict cannot broadcast into modules that have several names, as T5's embedding has in "
            "transformers 4; build the model on every rank (meta_init off) or use transformers 5."
        )
    if spec.weights == "dcp" and not spec.meta_init:
        raise UnusableInput("a distributed checkpoint is loaded into a model from the meta device; set meta_init.")


def _policy_lines(spec: TrainingSpec, release: tuple[int, int], imports: Imports) -> list[str]:
    """``options``: what every fully_shard call of this model is given."""
    fsdp = "torch.distributed.fsdp" if release >= (2, 6) else "torch.distributed._composable.fsdp"
    imports.name(fsdp, "fully_shard")
    entries = ['"mesh": mesh']
    fields = [
        f"param_dtype={dtype(spec.mp_param)}" if spec.mp_param else "",
        f"reduce_dtype={dtype(spec.mp_reduce)}" if spec.mp_reduce else "",
        f"output_dtype={dtype(spec.mp_output)}" if spec.mp_output else "",
        "" if spec.mp_cast_inputs else "cast_forward_inputs=False",
    ]
    if any(fields):
        imports.name(fsdp, "MixedPrecisionPolicy")
        entries.append(f'"mp_policy": {call("MixedPrecisionPolicy", *fields)}')
    if spec.offload:
        imports.name(fsdp, "CPUOffloadPolicy")
        entries.append(f'"offload_policy": CPUOffloadPolicy(pin_memory={spec.offload == "pinned"})')
    lines: list[str] = []
    if spec.placements:
        imports.name("torch.distributed.tensor", "Shard")
        imports.name("fnmatch", "fnmatchcase")
        lines.append(
            "dims = {}  # parameters that are not sharded on dimension 0, by identity: the callback sees no names"
        )
        lines.append("for name, parameter in model.named_parameters():")
        for i, (name, dim) in enumerate(spec.placements):
            lines.append(f'    {"el" if i else ""}if fnmatchcase(name, "{pattern(name)}"):')
            lines.append(
                f"        dims[parameter] = {int(dim)}  # its extent there must be a multiple of the shard size"
            )
        entries.append('"shard_placement_fn": lambda parameter: Shard(dims[parameter]) if parameter in dims else None')
    if spec.ignored:
        imports.name("fnmatch", "fnmatchcase")
        lines.append("# Whole on every rank; nobody reduces their gradients and nobody moves them to the device.")
        lines.append(
            f"ignored = {{parameter for name, parameter in model.named_parameters() if {names_match(spec.ignored)}}}"
        )
        entries.append('"ignored_params": ignored')
    if len(entries) == 1:
        return [*lines, f"options = {{{entries[0]}}}"]
    return [*lines, "options = {", *(f"    {entry}," for entry in entries), "}"]


def _fully_shard(spec: TrainingSpec, what: str, role: str) -> str:
    reshard = dict(spec.reshard_after_forward)
    extra = f"reshard_after_forward={reshard[role]!r}" if role in reshard else ""
    return call("fully_shard", what, extra, "**options")


def _shard(spec: TrainingSpec, release: tuple[int, int], imports: Imports) -> list[str]:
    lines = [
        "def shard(model, mesh):",
        '    """One communication group per fully_shard call, bottom-up; the root takes what is left."""',
    ]
    numbered, others = repeats(spec.units)
    body: list[str] = loop.freeze(spec, imports)
    if _tensor_parallel(spec):
        body += _parallelize(spec, imports)
        names = ", ".join(f'"{name}"' for name, _ in spec.mesh if name != "tp")
        body.append(f"mesh = mesh[{names}]  # fully_shard takes the data-parallel dimensions")
    body += _policy_lines(spec, release, imports)
    if spec.activation_checkpointing:
        body += _checkpoint(numbered, imports)
    for unit in others:
        if unit.role == "embedding":
            body += _single(spec, unit, release)
    for repeat in numbered:
        body.append(f"{repeat.head(_LAYER)}  # {len(repeat.indices)} x {', '.join(repeat.classes)}")
        body += [
            f"    {_fully_shard(spec, path(inner, _LAYER) if inner else _LAYER, role)}" for inner, role in repeat.parts
        ]
    for unit in others:
        if unit.role != "embedding":
            body += _single(spec, unit, release)
    if not spec.units:
        body += [
            "for block in blocks(model):",
            f"    {_fully_shard(spec, 'block', 'block')}",
        ]
    for tied in spec.tied:
        body.append("# One tensor under several names; one group, here or above, must hold all of them:")
        body += [f"#   {pattern(name)}" for name in tied]
    body.append(_fully_shard(spec, "model", "root"))
    lines += [f"    {line}" for line in body] + ["    return model"]
    return lines if spec.units else [*loop.blocks_placeholder(), *lines]


def _single(spec: TrainingSpec, unit: Unit, release: tuple[int, int]) -> list[str]:
    modules = [path(module) for module in unit.modules]
    if len(modules) == 1:
        return [_fully_shard(spec, modules[0], unit.role)]
    if release >= (2, 5):
        return [_fully_shard(spec, f"[{', '.join(modules)}]", unit.role)]
    return [
        _fully_shard(spec, modules[-1], unit.role)
        + f"  # {', '.join(modules[:-1])}: in the root's group (lists of modules from 2.5 on)"
    ]


def _parallelize(spec: TrainingSpec, imports: Imports) -> list[str]:
    """Tensor parallelism first: fully_shard then shards what each tensor-parallel rank has."""
    module = "torch.distributed.tensor.parallel"
    styles = {"colwise": "ColwiseParallel", "rowwise": "RowwiseParallel"}
    imports.name(module, "parallelize_module")
    by_list: dict[str, list[tuple[str, str]]] = {}
    for name, style in spec.tp_plan:
        if style not in styles:
            raise UnusableInput(
                f"the tensor-parallel style {style[:40]!r} of {name[:60]} is not one for which code is offered."
            )
        imports.name(module, styles[style])
        before, star, inner = pattern(name).partition(".*.")
        if not star or "*" in before or "*" in inner:
            raise UnusableInput(f"the tensor-parallel pattern {name[:60]!r} is not of the form layers.*.module.")
        by_list.setdefault(before, []).append((inner, styles[style]))
    lines = []
    for container, entries in by_list.items():
        lines.append("plan = {")
        lines += [f'    "{inner}": {style}(),' for inner, style in entries]
        lines += ["}", f"for {_LAYER} in {path(container)}:", f'    parallelize_module({_LAYER}, mesh["tp"], plan)']
    return lines


def _checkpoint(numbered: list[Repeat], imports: Imports) -> list[str]:
    wrapper = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
    imports.name(wrapper, "apply_activation_checkpointing", "checkpoint_wrapper")
    sources = [
        repeat.head(_LAYER).removesuffix(":") for repeat in numbered if any(not inner for inner, _ in repeat.parts)
    ]
    if not sources:
        types = "{type(block) for block in blocks(model)}"
    elif len(sources) == 1:
        types = f"{{type({_LAYER}) {sources[0]}}}"
    else:
        types = " | ".join(f"{{type({_LAYER}) {source}}}" for source in sources)
    return [
        f"classes = {types}",
        "apply_activation_checkpointing(  # before fully_shard, which then shards the wrapped blocks",
        "    model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: type(module) in classes",
        ")",
    ]


def _by_mesh(spec: TrainingSpec) -> list[str]:
    """With tensor parallelism, parameters lie on two meshes, and one fused operation takes tensors of one mesh only."""
    if not _tensor_parallel(spec):
        return []
    lines = [
        "def by_mesh(model):",
        '    """Parameters grouped by mesh: those of tensor-parallel layers lie on one more dimension than the others."""',
        "    groups = {}",
        "    for parameter in model.parameters():",
        "        groups.setdefault(parameter.device_mesh, []).append(parameter)",
        "    return list(groups.values())",
    ]
    if spec.clip_norm is None:
        return lines
    return [
        *lines,
        "",
        "",
        "def clip_grad_norm(model, limit):",
        '    """torch.nn.utils.clip_grad_norm_ over several meshes: the norm of the norms."""',
        "    groups = [[parameter for parameter in group if parameter.grad is not None] for group in by_mesh(model)]",
        "    norms = [torch.nn.utils.get_total_norm([p.grad for p in group]).full_tensor() for group in groups if group]",
        "    total = torch.linalg.vector_norm(torch.stack(norms))",
        "    for group in groups:",
        "        torch.nn.utils.clip_grads_with_norm_(group, limit, total)",
        "    return total",
    ]


def _train(spec: TrainingSpec, imports: Imports) -> list[str]:
    imports.name("torch.distributed.device_mesh", "init_device_mesh")
    names = ", ".join(f'"{name}"' for name, _ in spec.mesh)
    sizes = ", ".join(str(size) for _, size in spec.mesh)
    comma = "," if len(spec.mesh) == 1 else ""
    tp = dict(spec.mesh).get("tp", 1)
    body = [f'mesh = init_device_mesh("{spec.device_type}", ({sizes}{comma}), mesh_dim_names=({names}{comma}))']
    body.append("model = shard(build_model(), mesh)")
    if spec.meta_init:
        body.append("initialise(model, mesh, device)")
        if spec.weights != "random":
            body.append("load(model)")
        if spec.offload:
            body.append("place_buffers(model, device)")
    if spec.ignored:
        body.append("place_ignored(model, device)")
    index, count = ("dist.get_rank()", "dist.get_world_size()")
    if tp > 1:
        index, count = f"{index} // {tp}", f"{count} // {tp}"
    body += loop.train_lines(spec, imports, f'torch.amp.GradScaler("{spec.device_type}")', index, count)
    return ["def train(device):", *(f"    {line}" for line in body)]
