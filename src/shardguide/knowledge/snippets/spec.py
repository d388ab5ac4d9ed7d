"""What a snippet is rendered from: the plan's choices, nothing else.

Named tuples with plain values, so that two equal plans give the same text byte for byte.
"""

from __future__ import annotations

from keyword import iskeyword

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.model import Unit


class TrainingSpec(NamedTuple):
    """A training set-up for one model, as the code snippets need it."""

    release: str = "2.13"  # "2.13" or "2.13.0"
    device_type: str = "cuda"  # "cuda" (ROCm too), "xpu", "cpu"
    backend: str = "nccl"  # as init_process_group takes it: "nccl", "cpu:gloo,cuda:nccl", "xccl", "gloo"
    architecture: str = ""  # transformers class, e.g. "LlamaForCausalLM"; "" is the user's own build_model()
    implementation: str = "transformers5"  # "transformers5" or "transformers4": decides how buffers are initialised
    units: tuple[Unit, ...] = ()  # guidance.model.Model.units, bottom-up; what they leave is the root's group
    mesh: tuple[tuple[str, int], ...] = (("shard", 8),)  # names among "replicate", "shard", "tp", in this order
    reshard_after_forward: tuple[tuple[str, bool | int], ...] = ()  # by role ("block", "embedding", "head", "root")
    mp_param: str = ""  # MixedPrecisionPolicy fields, canonical dtype names; "" leaves the field out
    mp_reduce: str = ""
    mp_output: str = ""
    mp_cast_inputs: bool = True
    offload: str = ""  # "", "pinned" or "pageable": CPUOffloadPolicy(pin_memory=...)
    placements: tuple[tuple[str, int], ...] = ()  # (parameter name pattern with *, dimension) for shard_placement_fn
    ignored: tuple[str, ...] = ()  # name patterns for ignored_params
    frozen: tuple[str, ...] = ()  # name patterns that get requires_grad_(False)
    tied: tuple[tuple[str, ...], ...] = ()  # names of one tensor each, for the comment that says where they sit
    activation_checkpointing: bool = False  # of every unit with the role "block"
    param_dtype: str = "float32"  # in which the sharded parameters, and so the optimizer's state, are kept
    optimizer: str = "adamw"  # a key of loop.OPTIMIZERS
    clip_norm: float | None = 1.0  # None: no clipping
    accumulation: int = 1  # micro-batches per optimizer step
    accumulation_no_sync: bool = False  # True: gradients stay unsharded until the last micro-batch (FSDP's no_sync)
    meta_init: bool = True  # parameters allocated after sharding, each rank its shards only
    weights: str = (
        "random"  # "random", "pretrained" (rank 0 reads, the others receive) or "dcp" (distributed checkpoint)
    )
    tp_plan: tuple[tuple[str, str], ...] = ()  # (module name pattern, "colwise" or "rowwise"); needs "tp" in the mesh


class LaunchSpec(NamedTuple):
    """How many processes are started where, as the launch files need it."""

    nodes: int = 1
    per_node: int = 8  # processes, one per device
    device_type: str = "cuda"
    script: str = "train.py"
    name: str = "train"  # of the job
    release: str = "2.13"
    gpu_resource: str = "nvidia.com/gpu"  # Kubernetes resource; "amd.com/gpu" for ROCm
    cpu_work: bool = False  # True when the optimizer step runs on the CPU (offload, CPU training): threads matter then
    training: TrainingSpec = TrainingSpec()  # for accelerate and torchtitan, which configure the sharding as well
    torchtitan_base: str = ""  # "llama3.llama3_8b": the torchtitan configuration to start from


_MESH_ORDER = ("replicate", "shard", "tp")
_DTYPES = ("", "float32", "bfloat16", "float16")


def version(release: str) -> tuple[int, int]:
    """``(2, 13)`` of ``2.13`` or ``2.13.0``; UnusableInput for anything else."""
    parts = release.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise UnusableInput(f"{release[:40]!r} is not a PyTorch release; use a form like 2.13.")
    return int(parts[0]), int(parts[1])


def identifier(text: str, what: str) -> str:
    """``text`` if it is a plain Python name: model files are data, and names from them end up in code."""
    if not text.isascii() or not text.isidentifier() or iskeyword(text):
        raise UnusableInput(f"{what} {text[:60]!r} is not a Python name, so no code is shown for it.")
    return text


def path(module: str, root: str = "model") -> str:
    """The expression for a module: ``model.model.layers[0].mlp`` for ``model.layers.0.mlp``."""
    parts = [root]
    for part in module.split("."):
        number = part.isascii() and part.isdigit()
        parts.append(f"[{int(part)}]" if number else f".{identifier(part, 'the module name')}")
    return "".join(parts)


def pattern(text: str) -> str:
    """``text`` if it is a name pattern (letters, digits, dots, underscores, stars), safe inside quotes."""
    if not text.isascii() or not text.replace(".", "").replace("_", "").replace("*", "").isalnum():
        raise UnusableInput(f"the name pattern {text[:60]!r} has characters that no parameter name has.")
    return text


def check(spec: TrainingSpec, minimum: tuple[int, int] = (2, 0)) -> tuple[int, int]:
    """The release as a pair; UnusableInput for a combination that is not offered, with the reason in one sentence."""
    release = version(spec.release)
    if release < minimum:
        raise UnusableInput(
            f"PyTorch {spec.release} has no fully_shard of this kind (it came with 2.3); use FSDP1 there."
        )
    names = [name for name, _ in spec.mesh]
    if not names or names != [name for name in _MESH_ORDER if name in names] or any(size < 1 for _, size in spec.mesh):
        raise UnusableInput("a mesh has the dimensions replicate, shard and tp, in this order, each of at least 1.")
    for dtype in (spec.mp_param, spec.mp_reduce, spec.mp_output):
        if dtype not in _DTYPES:
            raise UnusableInput(f"{dtype[:40]!r} is not a dtype for training; use float32, bfloat16 or float16.")
    if spec.param_dtype not in ("float32", "bfloat16"):  # fp16 states underflow, and scaling cannot help them
        raise UnusableInput(f"parameters are kept in float32 or bfloat16, not in {spec.param_dtype[:40]!r}.")
    if spec.device_type not in ("cuda", "xpu", "cpu"):
        raise UnusableInput(f"the device type {spec.device_type[:40]!r} is not one of cuda, xpu and cpu.")
    if spec.device_type == "xpu" and release < (2, 3):
        raise UnusableInput(f"torch.xpu came with PyTorch 2.3; {spec.release} does not have it.")
    if not spec.backend.isascii() or not spec.backend.replace(":", "").replace(",", "").isalnum():
        raise UnusableInput(f"{spec.backend[:60]!r} is not a backend for init_process_group.")
    if spec.architecture:
        identifier(spec.architecture, "the model class")
    if spec.accumulation < 1:
        raise UnusableInput("the number of micro-batches per step must be at least 1.")
    if spec.clip_norm is not None and not 0 < spec.clip_norm < float("inf"):
        raise UnusableInput("the gradient norm to clip to must be a positive number.")
    if spec.weights not in ("random", "pretrained", "dcp"):
        raise UnusableInput(f"weights must be random, pretrained or dcp, not {spec.weights[:40]!r}.")
    return release
