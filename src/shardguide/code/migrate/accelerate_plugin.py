"""accelerate's FullyShardedDataParallelPlugin(...) in Python: the arguments of fsdp_version=2."""

from __future__ import annotations

import ast

from .names import arguments
from .todos import Refusal
from .unit import Unit

_PLUGIN = "FullyShardedDataParallelPlugin"
_GONE = (
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
    "limit_all_gathers",
    "state_dict_config",
    "optim_state_dict_config",
)
_SAME = (
    "auto_wrap_policy", "ignored_modules", "state_dict_type", "transformer_cls_names_to_wrap", "min_num_params",
    "activation_checkpointing", "cpu_ram_efficient_loading", "param_init_fn", "reshard_after_forward",
)  # fmt: skip


def convert(unit: Unit) -> None:
    """Every plugin of a file."""
    for node in ast.walk(unit.file.tree):
        full = unit.full(node.func) if isinstance(node, ast.Call) else ""
        if not full.startswith("accelerate") or full.rpartition(".")[2] != _PLUGIN:
            continue
        assert isinstance(node, ast.Call)
        try:
            if _plugin(unit, node):
                unit.use(node, "plugin", _PLUGIN, "converted")
        except Refusal as refusal:
            unit.leave(node, "plugin", _PLUGIN, refusal)


def _plugin(unit: Unit, node: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if node.args or None in given:
        raise Refusal("arguments")
    version = given.pop("fsdp_version", None)
    if version is not None:
        if isinstance(version, ast.Constant) and version.value == 2:
            return False
        if not isinstance(version, ast.Constant):
            raise Refusal("both", "The version is chosen when the program runs.")
    parts = ["fsdp_version=2"]
    for name, value in given.items():
        text = unit.source.text(value)
        if name in ("sharding_strategy", "reshard_after_forward"):
            parts.append(_strategy(unit, value))
        elif name in _SAME:
            parts.append(f"{name}={text}")
        elif name == "mixed_precision_policy":
            parts.append(f"{name}={_precision(unit, value)}")
        elif name == "cpu_offload":
            parts.append(f"{name}={_offload(unit, value)}")
        elif name == "forward_prefetch":
            unit.todo(value, "prefetch")
        elif name in _GONE:
            continue
        else:
            raise Refusal("argument-unknown", f"The argument {name} is not known to have a counterpart.")
    if "state_dict_type" not in given:
        parts.append('state_dict_type="FULL_STATE_DICT"')  # accelerate's default is another one for version 2
    if not any(part.startswith("reshard_after_forward") for part in parts):
        parts.append("reshard_after_forward=True")
    start, end = unit.source.span(node)
    name = unit.source.raw(node.func)
    line = f"{name}({', '.join(parts)})"
    if len(line) + node.col_offset > 110:
        indent = " " * (len(unit.source.indent(unit.statement(node))) + 4)
        line = f"{name}(\n" + "".join(f"{indent}{part},\n" for part in parts) + f"{indent[:-4]})"
    unit.source.before(unit.statement(node), unit.source.comments(start, end))
    unit.source.replace(node, line)
    return True


def _strategy(unit: Unit, value: ast.expr) -> str:
    bound = unit.bound(value)
    name = ""
    if isinstance(bound, ast.Constant) and isinstance(bound.value, str):
        name = bound.value.upper()
    elif bound is not None:
        name = unit.canon(bound).partition(".")[2]
    if isinstance(bound, ast.Constant) and isinstance(bound.value, bool):
        raise Refusal("both", "It has FSDP2's argument already, without fsdp_version=2.")
    if name in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "HYBRID_SHARD_ZERO2"):
        raise Refusal(
            "hybrid-nodes",
            "accelerate takes the sizes of hybrid sharding from ParallelismConfig(dp_replicate_size=, dp_shard_size=).",
        )
    if name == "NO_SHARD":
        raise Refusal("no-shard")
    if name not in ("FULL_SHARD", "SHARD_GRAD_OP"):
        raise Refusal("arguments", "The strategy is known only when the program runs.")
    unit.spent.append(value)
    return f"reshard_after_forward={name == 'FULL_SHARD'}"


def _precision(unit: Unit, value: ast.expr) -> str:
    bound = unit.bound(value)
    if isinstance(bound, ast.Constant):
        return unit.source.text(value)
    if not isinstance(bound, ast.Call) or unit.canon(bound.func) != "MixedPrecision":
        raise Refusal("arguments", "The mixed precision policy could not be read.")
    given = arguments(bound, "MixedPrecision")
    if given is None:
        raise Refusal("arguments")
    if "buffer_dtype" in given:
        unit.todo(value, "buffer-dtype", what="Cast the buffers by hand, if their precision matters.")
    parts = [
        f"{name}={unit.source.text(one)}" for name, one in given.items() if name in ("param_dtype", "reduce_dtype")
    ]
    if "reduce_dtype" not in given and "param_dtype" in given:
        parts.append(f"reduce_dtype={unit.source.text(given['param_dtype'])}")
    unit.spent.append(value)
    return f"{unit.need('torch.distributed.fsdp.MixedPrecisionPolicy')}({', '.join(parts)})"


def _offload(unit: Unit, value: ast.expr) -> str:
    bound = unit.bound(value)
    if isinstance(bound, ast.Constant):
        return unit.source.text(value)
    if isinstance(bound, ast.Call) and unit.canon(bound.func) == "CPUOffload":
        given = arguments(bound, "CPUOffload") or {}
        unit.spent.append(value)
        return unit.source.text(given["offload_params"]) if "offload_params" in given else "False"
    raise Refusal("arguments", "What is offloaded could not be read.")
