"""The user's current settings, read from what they run now: FSDP1, FSDP2 or DDP code, or an accelerate YAML.

Python is parsed to a syntax tree and never run. A setting that depends on the run (a flag, a configuration object) is
there with ``known`` false and the expression that decides it.
"""

from __future__ import annotations

import ast

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.readers.files import MIB, read_text, shown

from .review.torch_names import is_optimizer
from .syntax import Evaluator, Names, Value, parse

LIMIT = 2 * MIB


class Setting(NamedTuple):
    """One setting with its place."""

    name: str  # e.g. "sharding_strategy", "mixed_precision.param_dtype", "reshard_after_forward"
    value: str  # as written: "FULL_SHARD", "bfloat16", "True"; "unknown" when it cannot be read without running
    known: bool
    where: str  # "train.py:41"
    source: str  # the expression, shortened


class Call(NamedTuple):
    """One place where something that matters to FSDP is set up."""

    kind: str  # see KINDS; for configuration files "accelerate" or "deepspeed"
    what: str  # full name, e.g. "torch.distributed.fsdp.fully_shard" or "torch.optim.AdamW"
    where: str  # "train.py:41"
    target: str  # first argument as written (the module that is wrapped), ""
    repeated: bool  # inside a loop or comprehension: once per layer
    settings: tuple[Setting, ...]


class Current(NamedTuple):
    """Everything read from one file."""

    where: str
    language: str  # "python", "yaml", "json"
    strategy: str  # "fsdp1", "fsdp2", "ddp", "deepspeed", several joined by "+", "" when none was found
    calls: tuple[Call, ...]
    notes: tuple[str, ...] = ()

    def settings(self, kind: str, name: str) -> tuple[Setting, ...]:
        """Every value of a setting, in the file's order: ``settings("fsdp2", "mp_policy.param_dtype")``."""
        return tuple(s for call in self.calls if call.kind == kind for s in call.settings if s.name == name)


# Parameters in order, as torch 2.13 has them (tests/code/test_current.py compares them with it).
POSITIONS: dict[str, tuple[str, ...]] = {
    "FullyShardedDataParallel": (
        "module", "process_group", "sharding_strategy", "cpu_offload", "auto_wrap_policy", "backward_prefetch",
        "mixed_precision", "ignored_modules", "param_init_fn", "device_id", "sync_module_states", "forward_prefetch",
        "limit_all_gathers", "use_orig_params", "ignored_states", "device_mesh",
    ),
    "fully_shard": ("module",),
    "DistributedDataParallel": (
        "module", "device_ids", "output_device", "dim", "broadcast_buffers", "init_sync", "process_group",
        "bucket_cap_mb", "find_unused_parameters",
    ),
    "MixedPrecision": (
        "param_dtype", "reduce_dtype", "buffer_dtype", "keep_low_precision_grads", "cast_forward_inputs",
        "cast_root_forward_inputs",
    ),
    "MixedPrecisionPolicy": ("param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs"),
    "CPUOffload": ("offload_params",),
    "CPUOffloadPolicy": ("pin_memory",),
    "OffloadPolicy": (),
    "ModuleWrapPolicy": ("module_classes",),
    "CustomPolicy": ("lambda_fn",),
    "transformer_auto_wrap_policy": ("module", "recurse", "nonwrapped_numel", "transformer_layer_cls"),
    "size_based_auto_wrap_policy": ("module", "recurse", "nonwrapped_numel", "min_num_params"),
    "init_device_mesh": ("device_type", "mesh_shape", "mesh_dim_names"),
    "DeviceMesh": ("device_type", "mesh", "mesh_dim_names"),
    "init_process_group": ("backend", "init_method", "timeout", "world_size", "rank"),
    "clip_grad_norm_": ("parameters", "max_norm", "norm_type", "error_if_nonfinite", "foreach"),
    "autocast": ("device_type", "dtype", "enabled", "cache_enabled"),
    "GradScaler": ("device", "init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
    "ShardedGradScaler": ("device", "init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled"),
    "checkpoint_wrapper": ("module", "checkpoint_impl", "checkpoint_fn"),
    "apply_activation_checkpointing": ("model", "checkpoint_wrapper_fn", "check_fn", "auto_wrap_policy"),
    "checkpoint": ("function",),
    "set_default_dtype": ("d",),
    "compile": ("model", "fullgraph", "dynamic", "backend", "mode"),
    "torch.optim": ("params", "lr"),  # every optimizer
}  # fmt: skip

# Last part of the name -> kind, and the modules that it may come from.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "FullyShardedDataParallel": ("fsdp1", ("torch.distributed.fsdp",)),
    "fully_shard": ("fsdp2", ("torch.distributed",)),
    "DistributedDataParallel": ("ddp", ("torch.nn.parallel",)),
    "init_device_mesh": ("mesh", ("torch.distributed",)),
    "DeviceMesh": ("mesh", ("torch.distributed",)),
    "init_process_group": ("process_group", ("torch.distributed",)),
    "clip_grad_norm_": ("clipping", ("torch.nn.utils",)),
    "autocast": ("autocast", ("torch",)),
    "GradScaler": ("grad_scaler", ("torch",)),
    "ShardedGradScaler": ("grad_scaler", ("torch.distributed.fsdp",)),
    "checkpoint_wrapper": ("activation_checkpointing", ("torch", "fairscale")),
    "apply_activation_checkpointing": ("activation_checkpointing", ("torch",)),
    "checkpoint": ("activation_checkpointing", ("torch.utils.checkpoint",)),
    "set_default_dtype": ("model_dtype", ("torch",)),
    "compile": ("compile", ("torch",)),
    "Accelerator": ("accelerator", ("accelerate",)),
    "FullyShardedDataParallelPlugin": ("accelerator", ("accelerate",)),
    "TrainingArguments": ("trainer", ("transformers",)),
}
# Methods that mean the same on any object, with the kind they are evidence of.
_METHODS = {
    "clip_grad_norm_": "clipping",
    "gradient_checkpointing_enable": "activation_checkpointing",
    "no_sync": "accumulation",
    "set_requires_gradient_sync": "accumulation",
}


def read_current(path: str) -> Current:
    """The current settings in a Python file, an accelerate YAML or a DeepSpeed JSON (``-``: standard input).

    Raises UnusableInput for what is none of these, and for Python that cannot be parsed.
    """
    where = shown(path)
    text = read_text(path, LIMIT).replace("\r\n", "\n").replace("\r", "\n")
    lower = path.lower()
    if not text.strip():
        raise UnusableInput(f"{where}: the file is empty.")
    if lower.endswith((".json", ".ipynb")) or text.lstrip()[:1] == "{":
        from .current_config import from_json

        return from_json(text, where)
    if lower.endswith((".yaml", ".yml")) or (path == "-" and _is_yaml(text)):
        from .current_config import from_yaml

        return from_yaml(text, where)
    return from_python(text, where)


def _is_yaml(text: str) -> bool:
    return any(
        line.startswith(("compute_environment:", "distributed_type:", "fsdp_config:")) for line in text.split("\n")
    )


def from_python(text: str, where: str) -> Current:
    """The current settings in Python source; ``where`` names it. Raises UnusableInput."""
    tree = parse(text, where)
    try:
        return _Reader(tree, text, where).read()
    except RecursionError:
        raise UnusableInput(f"{where}: nested too deeply to be read.") from None


class _Reader:
    """Finds the calls of one file."""

    def __init__(self, tree: ast.Module, text: str, where: str) -> None:
        self.tree = tree
        self.where = where
        self.names = Names(tree, text)
        self.evaluator = Evaluator(self.names, POSITIONS)
        self.foreign: list[str] = []

    def read(self) -> Current:
        calls: list[Call] = []
        for node in ast.walk(self.tree):
            found = self._call(node) if isinstance(node, ast.Call) else None
            if found is not None and len(calls) < 2000:
                calls.append(found)
        calls.sort(key=lambda call: int(call.where.rpartition(":")[2]))
        kinds = [kind for kind in ("fsdp1", "fsdp2", "ddp") if any(call.kind == kind for call in calls)]
        notes = tuple(
            f"{self.where}: {name}, which was not read; what it does is not known." for name in self.foreign[:5]
        )
        if not calls:
            notes += (f"{self.where}: nothing in it sets up FSDP, DDP, an optimizer or a process group.",)
        return Current(self.where, "python", "+".join(kinds), tuple(calls), notes)

    def _call(self, node: ast.Call) -> Call | None:
        full, skip = self.names.dotted(node.func), 0
        if full.rpartition(".")[2] in ("partial", "enable_wrap", "wrap") and node.args:
            inner = self.names.dotted(node.args[0])
            if inner.rpartition(".")[2] in ("FullyShardedDataParallel", "fully_shard"):
                full, skip = inner, 1
        last = full.rpartition(".")[2]
        kind = self._kind(full, last)
        if not kind and isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if not kind:
            return None
        callee = "torch.optim" if kind == "optimizer" else last
        arguments = list(self.evaluator.arguments(node, callee if not skip else "", skip=skip))
        target = ""
        if kind in ("fsdp1", "fsdp2", "ddp", "compile", "activation_checkpointing", "optimizer") and not skip:
            first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg in _TARGETS), None)
            target = self.names.source(first, 80) if first is not None else ""
        return self._made(kind, full, node, target, arguments)

    def _kind(self, full: str, last: str) -> str:
        if not full:
            return ""
        if is_optimizer(full):
            return "optimizer"
        kind, homes = KINDS.get(last, ("", ()))
        if not kind or any(full == last or full.startswith(f"{home}.") for home in homes):
            return kind
        if kind in ("fsdp1", "fsdp2"):
            self.foreign.append(f"{last} is imported from {full.rpartition('.')[0] or 'elsewhere'}")
        return ""

    def _method(self, node: ast.Call, function: ast.Attribute) -> Call | None:
        """Calls on objects: ``model.clip_grad_norm_(1.0)``, ``X.from_pretrained(…, dtype=…)``, ``model.half()``."""
        name, owner = function.attr, self.names.source(function.value, 80)
        order = {"clip_grad_norm_": ("max_norm", "norm_type"), "set_requires_gradient_sync": ("value",)}
        given = [(k.arg, self.evaluator.value(k.value)) for k in node.keywords[:64] if k.arg is not None]
        if name in _METHODS:
            values = [self.evaluator.value(argument) for argument in node.args[:8]]
            return self._made(
                _METHODS[name], name, node, owner, [*zip(order.get(name, ()), values, strict=False), *given]
            )
        if name in ("from_pretrained", "from_config"):
            wanted = [(key, value) for key, value in given if key in ("dtype", "torch_dtype", "attn_implementation")]
            return self._made("model_dtype", name, node, owner, wanted) if wanted else None
        if "model" in owner.lower() and name in ("half", "bfloat16", "float", "double") and not node.args:
            dtype = {"half": "float16", "float": "float32", "double": "float64"}.get(name, name)
            value = Value(dtype, True, node.lineno, self.names.source(node))
            return self._made("model_dtype", name, node, owner, [("dtype", value)])
        if "model" in owner.lower() and name == "to":
            values = [self.evaluator.value(argument) for argument in node.args[:4]]
            dtypes = [v for v in values if v.text in _DTYPES] + [v for key, v in given if key == "dtype"]
            return self._made("model_dtype", name, node, owner, [("dtype", dtypes[0])]) if dtypes else None
        return None

    def _made(self, kind: str, what: str, node: ast.Call, target: str, arguments: list[tuple[str, Value]]) -> Call:
        settings: list[Setting] = []
        for name, value in arguments:
            self._flatten("" if name in _TARGETS else name, value, settings)
        return Call(kind, what, f"{self.where}:{node.lineno}", target, self._repeated(node), tuple(settings))

    def _flatten(self, name: str, value: Value, into: list[Setting], depth: int = 0) -> None:
        """A call among the arguments becomes ``name`` with its own arguments behind a dot."""
        if not name or len(into) > 400:
            return
        into.append(Setting(name, value.text, value.known, f"{self.where}:{value.line}", value.source))
        if depth < 4:
            for part, inner in value.parts:
                self._flatten(f"{name}.{part}", inner, into, depth + 1)

    def _repeated(self, node: ast.AST) -> bool:
        here = self.names.parents.get(node)
        while here is not None and not isinstance(here, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            if isinstance(here, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp)):
                return True
            here = self.names.parents.get(here)
        return False


_TARGETS = ("module", "model", "params", "parameters", "function")
_DTYPES = ("float16", "half", "bfloat16", "float32", "float", "float64", "double")
