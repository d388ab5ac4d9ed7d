"""Training without sharding: ``DistributedDataParallel``, for models whose states fit every GPU whole.

Sources: docstrings of torch.nn.parallel.DistributedDataParallel (device_ids, gradient_as_bucket_view, no_sync) and torch.autocast.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Snippet

from . import loop
from .record import verified
from .spec import TrainingSpec, check
from .text import Imports, dtype, repeats

KIND = "ddp"


def render(spec: TrainingSpec) -> Snippet:
    """The snippet ``ddp``. Raises UnusableInput for choices that only sharding has."""
    release = check(spec)
    if spec.offload or spec.weights == "dcp":
        raise UnusableInput("CPU offload and sharded checkpoints belong to FSDP; DistributedDataParallel has neither.")
    imports = Imports()
    imports.module("torch")
    title = f"DDP training of {spec.architecture or 'your model'} with PyTorch {spec.release}: nothing is sharded."
    autocast = ""
    if spec.mp_param in ("bfloat16", "float16"):
        autocast = f'torch.autocast("{spec.device_type}", dtype={dtype(spec.mp_param)})'
    functions = [
        loop.build_model(spec, imports, meta=False),
        _wrap(spec, imports),
        loop.build_optimizer(spec, imports),
        loop.load_batches(spec),
        loop.train_step(spec, loop.Step(no_sync="context", autocast=autocast), imports),
        _train(spec, release, imports),
        loop.main(spec, imports),
    ]
    code = loop.assemble(title, imports, loop.constants(spec), *functions)
    return Snippet(KIND, "DDP training code", "python", code, verified(KIND, features(spec), spec.release))


def features(spec: TrainingSpec) -> list[str]:
    """Which form of each part the snippet has; the record of what was executed is kept by these (see record.py)."""
    owner = "own" if not spec.architecture else spec.implementation
    scaler = "none" if not loop.scales(spec) else "amp" if check(spec) >= (2, 3) else "cuda.amp"
    return [
        f"model={owner}-real",
        f"checkpointing={'on' if spec.activation_checkpointing else 'off'}",
        f"weights={spec.weights if spec.architecture else 'own'}",
        f"scaler={scaler}",
        *loop.features(spec),
    ]


def _wrap(spec: TrainingSpec, imports: Imports) -> list[str]:
    imports.name("torch.nn.parallel", "DistributedDataParallel")
    body = loop.freeze(spec, imports)
    if spec.activation_checkpointing:
        imports.name(
            "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
            "apply_activation_checkpointing",
            "checkpoint_wrapper",
        )
        sources = []
        for repeat in repeats(spec.units)[0]:
            if any(not inner for inner, _ in repeat.parts):
                sources.append(f"{{type(layer) {repeat.head('layer').removesuffix(':')}}}")
        body += [
            f"classes = {' | '.join(sources) or '{type(block) for block in blocks(model)}'}",
            "apply_activation_checkpointing(",
            "    model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: type(module) in classes",
            ")",
        ]
    devices = "" if spec.device_type == "cpu" else ", device_ids=[device.index]"
    lines = [
        "def wrap(model, device):",
        '    """The whole model on every rank; the constructor sends rank 0\'s weights to the others."""',
        *(f"    {line}" for line in body),
        f"    return DistributedDataParallel(model.to(device){devices}, gradient_as_bucket_view=True)",
    ]
    return lines if spec.units or not spec.activation_checkpointing else [*loop.blocks_placeholder(), *lines]


def _train(spec: TrainingSpec, release: tuple[int, int], imports: Imports) -> list[str]:
    body = ["model = wrap(build_model(), device)"]
    scaler = f'torch.amp.GradScaler("{spec.device_type}")' if release >= (2, 3) else "torch.cuda.amp.GradScaler()"
    body += loop.train_lines(spec, imports, scaler, "dist.get_rank()", "dist.get_world_size()")
    return ["def train(device):", *(f"    {line}" for line in body)]
