"""Shapes that tensor parallelism leaves on each rank, before fully_shard splits them further.

Sources: ``torch.distributed.tensor.parallel.style`` (ColwiseParallel: Linear weight and bias ``Shard(0)``, Embedding
``Shard(1)``; RowwiseParallel: Linear weight ``Shard(1)``, bias replicated, Embedding ``Shard(0)``) and the styles that
transformers registers for its plans, ``transformers.distributed.tensor_parallel`` (colwise: ``Shard(ndim - 2)``,
rowwise: ``Shard(-1)`` and ``bias`` replicated). Chunks are torch.chunk's, as in fully_shard.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardguide.guidance.errors import UnusableInput

# Styles that only change what a module communicates; its parameters stay whole on every rank.
_REPLICATED = frozenset(
    {
        "replicate", "replicated", "replicated_with_grad_allreduce", "mla_kv_a_proj", "all_reduce", "moe_tp_experts",
        "moe_identity_expert", "sequence_parallel", "local_params", "gather", "ep_router", "ep_dispatch_experts",
    }
)  # fmt: skip
_COLWISE = frozenset({"colwise", "colwise_rep", "colwise_gather_output", "local_colwise"})
_ROWWISE = frozenset({"rowwise", "rowwise_rep", "rowwise_split_input", "local_rowwise"})


def plan_of(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The plan as a look-up; the last of two entries for one pattern wins, as in a dict literal."""
    return dict(pairs)


def style_of(name: str, plan: Mapping[str, str]) -> str:
    """The style for a parameter: its own entry, else its module's; numbers in the name match ``*``. "" when none."""
    generic = ".".join("*" if part.isdigit() else part for part in name.split("."))
    module, generic_module = name.rpartition(".")[0], generic.rpartition(".")[0]
    for key in (name, generic, module, generic_module):
        style = plan.get(key)
        if style is not None:
            return style
    return ""


def split(name: str, shape: tuple[int, ...], style: str, tp_size: int) -> tuple[int, int]:
    """(dim, pieces) by which ``style`` splits a parameter; dim -1 for one that stays whole.

    ``pieces`` is 2 where two projections are packed in one weight and each is split by itself.
    Raises UnusableInput for a style or shape whose split is not known.
    """
    ndim = len(shape)
    bias = name.rpartition(".")[2] == "bias"
    if style in ("", *_REPLICATED) or ndim == 0:
        return -1, 1
    if style in _COLWISE:
        return max(0, ndim - 2), 1
    if style in _ROWWISE:
        return (-1, 1) if bias else (ndim - 1, 1)
    if style == "embedding_rowwise":
        return 0, 1
    if style == "embedding_colwise":
        return min(1, ndim - 1), 1
    if style == "grouped_gemm":
        return 0, 1
    if style in ("packed_colwise", "packed_rowwise"):
        if ndim == 1:
            return (0, 1) if style == "packed_colwise" else (-1, 1)
        dim = ndim - 2 if style == "packed_colwise" else ndim - 1
        if shape[dim] % (2 * tp_size):
            raise UnusableInput(
                f"{name} packs two projections in {shape[dim]} rows, which --tp {tp_size} does not split evenly; "
                "choose a tensor-parallel size that divides them."
            )
        return dim, 2
    raise UnusableInput(f"{name}: the tensor-parallel style {style[:40]!r} is not one whose shapes are known.")


def local_shape(shape: tuple[int, ...], dim: int, tp_size: int, tp_rank: int) -> tuple[int, ...]:
    """Shape on one tensor-parallel rank of a parameter that is split on ``dim`` (-1: whole)."""
    if dim < 0 or tp_size == 1:
        return shape
    chunk = -(-shape[dim] // tp_size)
    return (*shape[:dim], max(0, min(chunk, shape[dim] - chunk * tp_rank)), *shape[dim + 1 :])
