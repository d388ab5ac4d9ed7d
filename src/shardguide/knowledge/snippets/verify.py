"""Finds out whether a snippet parses, and whether its release has every name, method and keyword that it uses.

This does the work that ``record.verified`` only looks up: the tests run it on every snippet that is offered, for every release.
Parsing to a syntax tree only; nothing is executed.
"""

from __future__ import annotations

import ast

from shardguide.guidance.record import Verified
from shardguide.knowledge import api

# Of torch itself, outside the index of distributed packages, but in every release from 2.0 on (looked up in the wheel of 2.0.1).
_BASIC = """
device dtype float32 bfloat16 float16 int64 int32 long uint8 Tensor Generator tensor zeros ones empty arange randn
randint rand full zeros_like ones_like empty_like cat stack isfinite linalg.vector_norm autocast no_grad enable_grad
inference_mode set_default_dtype get_default_dtype manual_seed get_rng_state set_rng_state set_num_threads __version__
version.cuda multiprocessing multiprocessing.spawn cuda.get_rng_state cuda.set_rng_state cuda.Stream cuda.synchronize
cuda.current_stream cuda.is_available cuda.device_count cuda.reset_peak_memory_stats utils.data.DataLoader
utils.data.Dataset utils.data.IterableDataset utils.data.TensorDataset utils.data.DistributedSampler
nn.functional.silu nn.functional.gelu nn.functional.relu nn.functional.mse_loss nn.functional.softmax
nn.functional.scaled_dot_product_attention nn.LayerNorm nn.Embedding nn.ReLU nn.GELU nn.Sequential nn.ModuleList
nn.Conv2d nn.SyncBatchNorm nn.BatchNorm1d nn.EmbeddingBag nn.Parameter float64 bool nn.init nn.init.zeros_
nn.init.normal_ nn.init.ones_ utils.data.Subset
"""
BASIC = frozenset(f"torch.{name}" for name in _BASIC.split())
# Private, so not in the index; read in torch/distributed/fsdp/api.py of 2.0.0 to 2.13.0.
PRIVATE = frozenset(("torch.distributed.fsdp.ShardingStrategy._HYBRID_SHARD_ZERO2",))
# What a method name means in the snippets: the classes of which one must have it in the release.
METHODS: dict[str, tuple[str, ...]] = {
    "set_requires_gradient_sync": (
        "torch.distributed.fsdp.FSDPModule",
        "torch.distributed._composable.fsdp.FSDPModule",
        "torch.distributed._composable.fsdp.FSDP",
    ),
    "full_tensor": ("torch.distributed.tensor.DTensor", "torch.distributed._tensor.DTensor"),
    "get_local_rank": ("torch.distributed.device_mesh.DeviceMesh",),
    "no_sync": ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.fsdp.FullyShardedDataParallel"),
    "clip_grad_norm_": ("torch.distributed.fsdp.FullyShardedDataParallel",),
    "scale": ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"),
    "unscale_": ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"),
    "update": ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"),
    "step": ("torch.optim.Optimizer",),
    "zero_grad": ("torch.optim.Optimizer",),
    "to_empty": ("torch.nn.Module",),
    "named_parameters": ("torch.nn.Module",),
    "named_buffers": ("torch.nn.Module",),
    "named_modules": ("torch.nn.Module",),
    "named_children": ("torch.nn.Module",),
    "parameters": ("torch.nn.Module",),
    "buffers": ("torch.nn.Module",),
    "modules": ("torch.nn.Module",),
    "train": ("torch.nn.Module",),
    "state_dict": ("torch.nn.Module",),
}
# Methods of tensors, of Python's own types, of transformers and of the user's model: not PyTorch's distributed API.
_OTHERS = """
abs add add_ all allclose any append argmax backward bfloat16 chunk clone close contiguous copy_ cpu cross_entropy
cuda cumsum data_ptr detach dim discard div_ double dump element_size equal eval exists exp expand extend fill_
flatten flip float format from_pretrained get get_rank half index init_weights is_alive is_floating_point isdecimal
item items join keys log lower max mean min mkdir mul_ new_empty new_zeros normal_ numel pop put read read_text
removeprefix requires_grad_ reset_parameters reshape resolve roll setdefault shape size softmax split sqrt square
squeeze start startswith strip sum super terminate tie_weights to tolist transpose type_as uniform_ unlink unsqueeze
values view write write_text zero_
"""
OTHERS = frozenset(_OTHERS.split())


def verify(code: str, release: str) -> Verified:
    """``Verified`` with the first two checks really made; ``executed`` is not this function's to say."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return Verified(parses=False, api=False, executed="")
    return Verified(parses=True, api=not problems(tree, release), executed="")


def problems(tree: ast.AST, release: str, own: frozenset[str] = frozenset()) -> list[str]:
    """What the release lacks, one sentence each. ``own`` names methods of the user's own objects."""
    names = _imported(tree)
    dicts = _dicts(tree)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            dotted = _dotted(node, names)
            if dotted.startswith("torch.") and not _exists(dotted, release):
                found.append(f"line {node.lineno}: {dotted} is not in PyTorch {release}")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            for alias in node.names:
                if not _exists(f"{node.module}.{alias.name}", release):
                    found.append(f"line {node.lineno}: {node.module}.{alias.name} is not in PyTorch {release}")
        if isinstance(node, ast.Call):
            found += _call(node, names, dicts, release, own)
    return sorted(set(found))


def _imported(tree: ast.AST) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dicts(tree: ast.AST) -> dict[str, list[str]]:
    """Keys of dictionaries that are assigned to a name: what ``**name`` passes on."""
    result: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and isinstance(node.targets[0], ast.Name):
            keys = [
                key.value for key in node.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
            result[node.targets[0].id] = keys
    return result


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


def _exists(dotted: str, release: str) -> bool:
    """Whether the release has the name; a package (``torch.distributed``) counts when the index has something in it."""
    if dotted in BASIC or dotted in PRIVATE or api.exists(dotted, release):
        return True
    return dotted in _packages()


def _packages() -> frozenset[str]:
    if not _cache:
        packages = {
            "torch",
            "torch.linalg",
            "torch.nn",
            "torch.amp",
            "torch.cuda",
            "torch.xpu",
            "torch.optim",
            "torch.version",
            "torch.utils",
            "torch.utils.data",
        }
        for name in api.names():
            parts = name.split(".")
            packages |= {".".join(parts[:i]) for i in range(1, len(parts)) if parts[i - 1].islower()}
        _cache.append(frozenset(packages))
    return _cache[0]


_cache: list[frozenset[str]] = []


def _call(
    node: ast.Call, names: dict[str, str], dicts: dict[str, list[str]], release: str, own: frozenset[str]
) -> list[str]:
    dotted = _dotted(node.func, names)
    if dotted:
        return _misused(node, dotted, dicts, release) if dotted.startswith("torch.") else []
    if not isinstance(node.func, ast.Attribute) or node.func.attr in OTHERS | own or _own(node.func.value):
        return []
    method = node.func.attr
    owners = [f"{owner}.{method}" for owner in METHODS.get(method, ())] or api.ending(method)
    have = [name for name in owners if api.exists(name, release)]
    if not have:
        return [f"line {node.lineno}: nothing in PyTorch {release} has the method {method}"]
    # What the object is, only running shows: one class whose method can be called so is enough.
    return min((_misused(node, name, dicts, release) for name in have), key=len)


def _own(owner: ast.expr) -> bool:
    """Whether a method is called on ``self`` or ``super()``, which is the user's own class."""
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    if isinstance(owner, ast.Call):
        return isinstance(owner.func, ast.Name) and owner.func.id == "super"
    return isinstance(owner, ast.Name) and owner.id == "self"


def _misused(node: ast.Call, dotted: str, dicts: dict[str, list[str]], release: str) -> list[str]:
    """Keywords and positional arguments that the release's signature does not take."""
    signature = api.signature(dotted, release)
    if signature is None:
        return []
    accepted = {name for name, _ in signature}
    if any(name.startswith("**") for name in accepted):
        return []
    keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
    for keyword in node.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Name):
            keywords += dicts.get(keyword.value.id, [])
    found = [f"line {node.lineno}: {dotted} of {release} takes no {name}" for name in keywords if name not in accepted]
    positional = [name for name, _ in signature]
    limit = positional.index("*") if "*" in positional else len([name for name in positional if name != "/"])
    if not any(name.startswith("*") and name != "*" for name in positional) and len(node.args) > limit:
        found.append(f"line {node.lineno}: {dotted} of {release} takes at most {limit} positional arguments")
    return found
