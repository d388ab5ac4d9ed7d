"""What asked for memory, by the frames of the stack that asked: the innermost frame that says more than "some operator".

File and function names are PyTorch's own, those of every release from 2.0 on: FSDP2 lay under ``distributed/_composable/fsdp``
up to 2.5, FSDP1's flat parameters in ``fsdp/flat_param.py`` up to 2.0, DTensor under ``distributed/_tensor`` up to 2.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shardguide.guidance.hints import NamedTuple

OTHER = "other"
NO_STACK = "no stack"
TITLES = {
    "all_gather": "FSDP's all-gathered parameters",
    "summon": "parameters gathered by summon_full_params",
    "reduce_scatter": "FSDP's gradient reduction",
    "optimizer_state": "optimizer state",
    "optimizer_step": "temporaries of the optimizer step",
    "clip": "gradient clipping",
    "broadcast_full": "full tensors broadcast from rank 0",
    "state_dict": "full state dict",
    "full_tensor": "full tensors of DTensors",
    "load": "loading a checkpoint",
    "place": "the model while it is built or moved",
    "loss": "logits and loss",
    "recompute": "forward recomputed in backward",
    "forward": "forward pass (activations and temporaries)",
    "backward": "backward pass (gradients and temporaries)",
    "nccl": "communication",
    "graph": "compiled code",
    "generate": "generation (key-value cache)",
    OTHER: "other code",
    NO_STACK: "no stack recorded",
}

# (category, parts of the file's path of which one must be there, function as a regular expression; "" for any). The first row
# that fits a frame counts, and the innermost frame that fits one; a row without a category says that the frame says nothing.
_ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "broadcast_full",
        ("torch/distributed/_state_dict_utils.py",),
        r"_broadcast_(?:tensors?|state_dict)|_distribute_\w+",
    ),
    ("state_dict", ("torch/distributed/_state_dict_utils.py",), ""),
    (
        "state_dict",
        ("distributed/fsdp/_state_dict_utils.py", "distributed/fsdp/_optim_utils.py"),
        r"_\w*(?:full|unflatten|gather|optim_state|state_dict)\w*",
    ),
    (
        "state_dict",
        ("torch/distributed/checkpoint/state_dict.py",),
        r"_?get_\w*state_dict|_maybe_full_or_cpu_state_dict",
    ),
    ("broadcast_full", ("torch/distributed/checkpoint/state_dict.py",), r"set_\w*state_dict|_load_\w*state_dict"),
    ("load", ("torch/distributed/checkpoint/",), r"_?load\w*|read_data|resolve_tensor"),
    ("summon", ("distributed/fsdp/_unshard_param_utils.py",), ""),
    (
        "all_gather",
        ("/_fsdp_collectives.py",),
        r"foreach_all_gather\w*|all_gather_\w+|_get_param_all_gather_inputs|split_with_sizes_copy",
    ),
    ("reduce_scatter", ("/_fsdp_collectives.py",), r"foreach_reduce\w*|chunk_cat|_div_if_needed"),
    (
        "all_gather",
        ("/_fsdp_param.py",),
        r"init_all_gather_outputs|alloc_all_gather_outputs|all_gather_inputs|init_unsharded_param|alloc_storage",
    ),
    (
        "reduce_scatter",
        ("/_fsdp_param.py", "/_fsdp_param_group.py"),
        r"post_backward|accumulate_unsharded_grad_if_needed|to_accumulated_grad_if_needed",
    ),
    ("all_gather", ("/_fsdp_param_group.py",), r"unshard|wait_for_unshard|_wait_all_gather\w*"),
    ("place", ("/_fsdp_param.py",), r"_init_sharded_param|reset_sharded_param"),
    (
        "all_gather",
        ("fsdp/_flat_param.py", "fsdp/flat_param.py"),
        r"(?:pre_|needs_)?unshard|init_flat_param_attributes|_all_gather_flat_param"
        r"|_alloc_padded_unsharded_flat_param|_use_(?:low_precision_shard|unsharded_flat_param)",
    ),
    (
        "reduce_scatter",
        ("fsdp/_runtime_utils.py",),
        r"_get_reduce_scatter_tensors|_reduce_grad\w*|_accumulate_sharded_grad|_post_backward_hook|_post_reduce_grad_callback",
    ),
    (
        "reduce_scatter",
        ("fsdp/_flat_param.py", "fsdp/flat_param.py"),
        r"prepare_gradient_for_backward|unshard_grad|_?\w*sharded_grad\w*",
    ),
    (
        "place",
        ("fsdp/_init_utils.py", "fsdp/_flat_param.py", "fsdp/flat_param.py"),
        r"_move_\w+_to_device|_materialize_\w+|_init_flat_param(?:_and_metadata)?|flatten_tensors\w*|shard"
        r"|_init_param_handle\w*|_sync_module_\w+",
    ),
    ("", ("torch/optim/lr_scheduler.py", "torch/optim/swa_utils.py"), ""),
    ("optimizer_state", ("torch/optim/",), r"_init_group"),
    ("optimizer_step", ("torch/optim/", "torch/distributed/optim/"), ""),
    ("clip", ("torch/nn/utils/clip_grad.py",), ""),
    ("clip", ("fsdp/fully_sharded_data_parallel.py",), r"clip_grad_norm_"),
    ("full_tensor", ("torch/distributed/tensor/_api.py", "torch/distributed/_tensor/api.py"), r"full_tensor"),
    ("load", ("torch/distributed/tensor/_api.py", "torch/distributed/_tensor/api.py"), r"distribute_\w+"),
    ("nccl", ("torch/distributed/distributed_c10d.py", "torch/distributed/_functional_collectives.py"), ""),
    ("generate", ("transformers/generation/", "transformers/cache_utils.py"), ""),
    ("loss", ("torch/nn/functional.py",), r"cross_entropy|nll_loss|log_softmax"),
    ("loss", ("torch/nn/modules/loss.py", "/loss_utils.py"), ""),
    ("recompute", ("torch/utils/checkpoint.py",), r"unpack_hook|recompute_fn|inner_unpack|backward"),
    ("place", ("torch/nn/modules/module.py",), r"_apply|convert|to|cuda|to_empty|half|bfloat16|float"),
    ("load", ("torch/nn/modules/module.py",), r"load_state_dict|_load_from_state_dict"),
    ("", ("torch/nn/modules/module.py",), ""),
    (
        "load",
        (
            "torch/serialization.py",
            "transformers/modeling_utils.py",
            "transformers/core_model_loading.py",
            "safetensors/torch.py",
        ),
        r"_?load\w*|from_pretrained|_legacy_load|restore_location|materialize\w*",
    ),
    ("graph", ("torchinductor_", "torch/_inductor/cudagraph_trees.py"), ""),
    ("place", ("torch/nn/modules/",), r"__init__|_?reset_parameters"),
    ("place", ("torch/nn/init.py",), ""),
    ("forward", ("torch/nn/modules/", "torch/nn/functional.py", "flash_attn/"), ""),
    # In autograd functions of torch.distributed the caller says what it was for.
    ("", ("torch/distributed/", "torch/autograd/function.py"), r"forward|apply"),
    ("forward", (), r"forward"),
    ("backward", ("torch/autograd/graph.py", "torch/autograd/__init__.py"), r"_engine_run_backward|backward|grad"),
    ("backward", (), r"backward"),
    # C++ frames, which snapshots hold when stacks="all" was asked for, as it is by default.
    ("backward", (), r".*torch::autograd::(?:Engine|Node|AccumulateGrad).*"),
    ("nccl", (), r".*c10d::ProcessGroup.*"),
)


class Asked(NamedTuple):
    """Who asked."""

    category: str  # a key of TITLES
    at: int  # index of the frame that says so, -1 for none
    place: str  # that frame, "torch/optim/adam.py:608 in _multi_tensor_adam"


_known: dict[tuple[str, str], str] = {}
MOST_KNOWN = 200_000
# What a frame further out says about one further in: a forward pass inside generate() or inside recomputation, a gathering
# of parameters for a state dict. A collective says least: whoever called it is what matters.
_WITHIN = {
    "forward": ("recompute", "generate"),
    "loss": ("generate",),
    "all_gather": ("state_dict", "summon"),
    "summon": ("state_dict",),
    "full_tensor": ("state_dict", "optimizer_step", "clip"),
    "nccl": tuple(name for name in TITLES if name not in (OTHER, NO_STACK, "nccl")),
}


def category(file: str, function: str) -> str:
    """The category of one frame, "" when it says nothing."""
    key = (file, function)
    found = _known.get(key)
    if found is None:
        path = file.replace("\\", "/")
        # A qualified name may stand there: "AdamW.step".
        short = function.rpartition(".")[2]
        found = ""
        for name, parts, what in _ROWS:
            if parts and not any(part in path for part in parts):
                continue
            if not what or re.fullmatch(what, short) or re.fullmatch(what, function):
                found = name
                break
        if len(_known) < MOST_KNOWN:
            _known[key] = found
    return found


def asked(frames: Iterable[tuple[str, int, str]]) -> Asked:
    """Who asked, from (file, line, function), innermost first."""
    found: Asked | None = None
    index = -1
    for index, (file, line, function) in enumerate(frames):
        name = category(file, function)
        if name and (found is None or name in _WITHIN.get(found.category, ())):
            found = Asked(name, index, f"{short_path(file)}:{line} in {function}")
    return found or Asked(OTHER if index >= 0 else NO_STACK, -1, "")


def short_path(file: str) -> str:
    """The path from the package on: what stands before it is of that machine only."""
    path = file.replace("\\", "/")
    for mark in ("site-packages/", "dist-packages/"):
        _, found, rest = path.rpartition(mark)
        if found:
            return rest
    return path
