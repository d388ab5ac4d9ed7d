"""FSDP1's names and the arguments of its callables, and what may be written in their place in a release."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import api

from .todos import Refusal

FSDP1 = "FullyShardedDataParallel"
ORDER: dict[str, tuple[str, ...]] = {
    FSDP1: (
        "module", "process_group", "sharding_strategy", "cpu_offload", "auto_wrap_policy", "backward_prefetch",
        "mixed_precision", "ignored_modules", "param_init_fn", "device_id", "sync_module_states", "forward_prefetch",
        "limit_all_gathers", "use_orig_params", "ignored_states", "device_mesh",
    ),
    "MixedPrecision": (
        "param_dtype", "reduce_dtype", "buffer_dtype", "keep_low_precision_grads", "cast_forward_inputs",
        "cast_root_forward_inputs", "_module_classes_to_ignore",
    ),
    "CPUOffload": ("offload_params",),
    "FullStateDictConfig": ("offload_to_cpu", "rank0_only"),
    "ShardedStateDictConfig": ("offload_to_cpu",),
    "FullOptimStateDictConfig": ("offload_to_cpu", "rank0_only"),
    "ShardedOptimStateDictConfig": ("offload_to_cpu",),
    "state_dict_type": ("module", "state_dict_type", "state_dict_config", "optim_state_dict_config"),
    "optim_state_dict": ("model", "optim", "optim_state_dict", "group"),
    "optim_state_dict_to_load": ("model", "optim", "optim_state_dict", "is_named_optimizer", "load_directly", "group"),
    "full_optim_state_dict": ("model", "optim", "optim_input", "rank0_only", "group"),
    "sharded_optim_state_dict": ("model", "optim", "group"),
    "scatter_full_optim_state_dict": ("full_optim_state_dict", "model", "optim_input", "optim", "group"),
    "shard_full_optim_state_dict": ("full_optim_state_dict", "model", "optim_input", "optim"),
    "flatten_sharded_optim_state_dict": ("sharded_optim_state_dict", "model", "optim"),
    "load_sharded_optimizer_state_dict": ("model_state_dict", "optimizer_key", "storage_reader", "planner"),
    "summon_full_params": ("module", "recurse", "writeback", "rank0_only", "offload_to_cpu", "with_grads"),
    "fsdp_modules": ("module", "root_only"),
    "clip_grad_norm_": ("max_norm", "norm_type"),
    "ShardedGradScaler": (
        "device", "init_scale", "backoff_factor", "growth_factor", "growth_interval", "enabled", "process_group",
    ),
    "transformer_auto_wrap_policy": ("module", "recurse", "nonwrapped_numel", "transformer_layer_cls"),
    "lambda_auto_wrap_policy": ("module", "recurse", "nonwrapped_numel", "lambda_fn"),
    "_module_wrap_policy": ("module", "recurse", "nonwrapped_numel", "module_classes"),
    "_or_policy": ("module", "recurse", "nonwrapped_numel", "policies"),
    "ModuleWrapPolicy": ("module_classes",),
    "CustomPolicy": ("lambda_fn",),
}  # fmt: skip
# Static methods of FSDP1 and what else of its module is used like one.
STATIC = frozenset(
    [
        "state_dict_type", "set_state_dict_type", "get_state_dict_type", "summon_full_params", "optim_state_dict",
        "optim_state_dict_to_load", "full_optim_state_dict", "sharded_optim_state_dict", "scatter_full_optim_state_dict",
        "shard_full_optim_state_dict", "flatten_sharded_optim_state_dict", "rekey_optim_state_dict", "fsdp_modules",
    ]
)  # fmt: skip
# Classes that only describe a setting: new code reads them where the setting is not known before it runs.
SETTINGS = frozenset(
    [
        "ShardingStrategy", "MixedPrecision", "CPUOffload", "BackwardPrefetch", "StateDictType", "StateDictConfig",
        "FullStateDictConfig", "ShardedStateDictConfig", "LocalStateDictConfig", "OptimStateDictConfig",
        "FullOptimStateDictConfig", "ShardedOptimStateDictConfig", "LocalOptimStateDictConfig", "StateDictSettings",
        "ModuleWrapPolicy", "CustomPolicy", "transformer_auto_wrap_policy", "size_based_auto_wrap_policy",
        "lambda_auto_wrap_policy", "always_wrap_policy", "_or_policy", "_module_wrap_policy", "wrap", "enable_wrap",
        "_wrap_module_cls_individually",
    ]
)  # fmt: skip
# Not in the index of the API, but in every release from 2.0 on.
_UNINDEXED = ("torch.distributed.algorithms._checkpoint.",)


def canonical(full: str) -> str:
    """FSDP1's own short name of something: "MixedPrecision", "FullyShardedDataParallel.state_dict_type"; "" for the rest."""
    if not full.startswith("torch.distributed."):
        return ""
    parts = full.split(".")
    if parts[2] == "checkpoint" and parts[-1] == "load_sharded_optimizer_state_dict":
        return parts[-1]
    if parts[2] != "fsdp":
        return ""
    last = parts[-1]
    if FSDP1 in parts[:-1]:
        return f"{FSDP1}.{last}"
    if len(parts) > 4 and parts[-2] in ("ShardingStrategy", "BackwardPrefetch", "StateDictType"):
        return f"{parts[-2]}.{last}"
    if "ShardedGradScaler" in parts:
        return "ShardedGradScaler"
    if last in SETTINGS or last in (FSDP1, "FlatParameter", "OptimStateKeyType"):
        return last
    if last == "FSDP":
        return FSDP1
    private = any(part.startswith("_") and not part.startswith("_fully_shard") for part in parts[3:])
    return f"private {'.'.join(parts[3:])}" if private and "_fully_shard" not in parts else ""


class Target(NamedTuple):
    """What a release offers to write."""

    release: str

    def has(self, name: str) -> bool:
        """Whether the release has a name of torch.distributed."""
        return api.exists(name, self.release)

    def takes(self, name: str, keyword: str) -> bool:
        """Whether a callable of it has a parameter."""
        call = api.signature(name, self.release)
        return call is not None and any(one[0].lstrip("*") == keyword for one in call)

    def method(self, name: str) -> bool:
        """Whether a module of fully_shard has a method."""
        homes = ("torch.distributed.fsdp.FSDPModule", "torch.distributed._composable.fsdp.FSDPModule")
        return any(self.has(f"{home}.{name}") for home in (*homes, "torch.distributed._composable.fsdp.FSDP"))

    def name(self, full: str) -> str:
        """A name of torch.distributed as this release has it. Raises Refusal where it has none."""
        if not full.startswith("torch.distributed.") or full.startswith(_UNINDEXED) or self.has(full):
            return full
        last = full.rpartition(".")[2]
        for old in (
            f"torch.distributed._composable.fsdp.{last}",
            f"torch.distributed._composable.fsdp.{'FSDP' if last == 'FSDPModule' else last}",
            f"torch.distributed._tensor.{last}",
        ):
            if self.has(old):
                return old
        raise Refusal("release", f"PyTorch {self.release} has no {last}.")

    @property
    def home(self) -> str:
        """The module that exports fully_shard, "" where there is none."""
        for home in ("torch.distributed.fsdp", "torch.distributed._composable.fsdp"):
            if self.has(f"{home}.fully_shard"):
                return home
        return ""

    @property
    def at_least(self) -> tuple[int, ...]:
        """The release as numbers."""
        return tuple(int(part) for part in self.release.split(".")[:2] if part.isdigit())


def arguments(call: ast.Call, name: str, skip: int = 0) -> dict[str, ast.expr] | None:
    """The arguments of a call by name; None where ``*`` or ``**`` hide some."""
    out: dict[str, ast.expr] = {}
    order = ORDER.get(name, ())
    for position, value in enumerate(call.args[skip:]):
        if isinstance(value, ast.Starred) or position >= len(order):
            return None
        out[order[position]] = value
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        out[keyword.arg] = keyword.value
    return out
