"""What accounting is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.model import Model, Parameter

from .mesh import Layout

SHARDED = frozenset({"full", "grad_op", "hybrid"})
STRATEGIES = SHARDED | {"none"}

# Parameter name -> dim that shard_placement_fn returns for it; whatever is not named is sharded on dim 0.
Placements = Mapping[str, int] | Callable[[Parameter], int | None]


class Request(NamedTuple):
    """One way to train one model on one layout."""

    model: Model
    layout: Layout
    strategy: str = "full"  # "full", "grad_op" (not resharded after forward), "hybrid" (HSDP), "none" (DDP)
    param_dtype: str = ""  # dtype in which the sharded parameters are kept; "": each parameter's own dtype
    mp_param_dtype: str = ""  # MixedPrecisionPolicy.param_dtype; "": None
    mp_reduce_dtype: str = ""  # MixedPrecisionPolicy.reduce_dtype; "": None
    optimizer: str = ""  # "adamw", "sgd", ...; "": not known yet
    hyper: Mapping[str, Any] = {}  # what changes its state: momentum, amsgrad, centered, fused, capturable, others
    offload: bool = False  # CPUOffloadPolicy
    placements: Placements | None = None
    reshard_after_forward: bool | int | None = None  # as passed to every fully_shard call
    release: str = ""  # PyTorch release, "2.13.0"; "": the newest that the rules here were run with (2.13)
    tp_plan: tuple[tuple[str, str], ...] | None = None  # (module pattern, style); None: the model's own
    use_orig_params: bool = True  # FSDP1 only


class RankRun(NamedTuple):
    """What each of the ranks first_rank..last_rank (inclusive) holds between optimizer steps; None: cannot be known."""

    first_rank: int
    last_rank: int
    parameters: int  # elements that the rank owns, DTensor.to_local().numel() summed
    stored_parameters: int  # elements that its storage holds: padded, the same on every rank of a shard group
    parameter_bytes: int | None  # of stored_parameters
    gradient_bytes: int | None  # storage of the sharded gradients, padded alike (with offload: not padded)
    optimizer_bytes: int | None  # tensors of the optimizer's state, not padded, its scalars apart
    optimizer_scalar_bytes: int | None  # zero-dimensional tensors: step, mu_product, eta, mu
    buffer_bytes: int
    device_bytes: int | None  # of the above, on the accelerator
    host_bytes: int | None  # of the above, in host memory


class Group(NamedTuple):
    """One communication group (one fully_shard call): sizes of its collectives' tensors on each rank, not traffic.

    With tensor parallelism that does not divide evenly, the sizes are those of TP rank 0, the largest.
    """

    name: str
    modules: tuple[str, ...]  # () for the root: whatever no other group holds
    shard_size: int
    replicate_size: int
    parameters: int  # elements, unsharded
    stored_parameters: int  # elements of the padded shards on each rank
    unsharded_bytes: int | None  # the unsharded parameters, padded, in the compute dtype
    all_gather_input_bytes: int | None  # a part of the output, not separate memory
    all_gather_bytes: int | None  # the all-gather's output
    reduce_scatter_bytes: int | None  # the reduce-scatter's input
    reduce_scatter_output_bytes: int | None
    all_reduce_bytes: int | None  # HSDP: the reduce-scatter's output again, all-reduced over the replicas; else 0


def release_minor(release: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0"; (2, 13), the release that the rules were run with, when the release is not known."""
    parts = release.split("+")[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return 2, 13
