"""The exact arithmetic of sharding: what every rank holds, what every collective allocates, and what a choice adds.

Everything is integer arithmetic over shapes; nothing here imports PyTorch. The tests shard the same shapes with the
real ``fully_shard`` and compare to the byte.
"""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING, Any

from .group import groups, members, mixed_dtypes, split_ties
from .mesh import Layout
from .optimizers import Support, optimizer_support, support
from .records import Group, RankRun, Request
from .shards import lives, lower_bounds, per_rank
from .survey import Survey, take

if TYPE_CHECKING:
    from .flat import FlatGroup, flat_groups, flat_per_rank
    from .refusal import Refusal, refusals
    from .transient import SOURCES, transients

__all__ = [
    "FORMULAS",
    "SOURCES",
    "FlatGroup",
    "Group",
    "Layout",
    "RankRun",
    "Refusal",
    "Request",
    "Support",
    "Survey",
    "flat_groups",
    "flat_per_rank",
    "groups",
    "lives",
    "lower_bounds",
    "members",
    "mixed_dtypes",
    "optimizer_support",
    "per_rank",
    "refusals",
    "split_ties",
    "support",
    "take",
    "transients",
]

# Imported when first asked for: not every command needs them, and each costs start-up time.
_LATER = {
    "FlatGroup": "flat",
    "flat_groups": "flat",
    "flat_per_rank": "flat",
    "Refusal": "refusal",
    "refusals": "refusal",
    "SOURCES": "transient",
    "transients": "transient",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_LATER[name]}")
    value = getattr(module, name)
    globals()[name] = value
    return value


# accounting.formulas: W is the shard size, c = ceil(d / W) with d the extent of the shard dim, r the elements per row
# of it; the compute dtype is MixedPrecisionPolicy.param_dtype, else the parameter's own.
FORMULAS: dict[str, str] = {
    "parameters": "elements the rank owns: sum of max(0, min(c, d - c x shard index)) x r; ignored parameters whole",
    "stored_parameters": "elements its storage holds, the same on every rank of a shard group: sum of c x r",
    "parameter_bytes": "stored_parameters x bytes of the dtype the parameters are kept in",
    "gradient_bytes": (
        "sum of c x r x bytes over parameters with requires_grad: gradients are views of the padded reduce-scatter "
        "output; with CPU offload each is copied to the host without its padding"
    ),
    "optimizer_bytes": "state tensors per parameter x owned elements x bytes of the parameter's dtype, not padded",
    "optimizer_scalar_bytes": "zero-dimensional state tensors per trained parameter x 4 bytes, on every rank",
    "buffer_bytes": "every buffer whole: fully_shard does not shard buffers",
    "groups.unsharded_bytes": "W x sum of c x r x bytes in the compute dtype",
    "groups.all_gather_bytes": "output of the all-gather: as unsharded_bytes; 0 for W = 1 from 2.9 on, nothing moves",
    "groups.all_gather_input_bytes": "this rank's part of the all-gather's output: all_gather_bytes / W",
    "groups.reduce_scatter_bytes": (
        "the reduce-scatter's input: W x sum of c x r x bytes in the reduce dtype, over parameters with requires_grad"
    ),
    "groups.reduce_scatter_output_bytes": "reduce_scatter_bytes / W",
    "groups.all_reduce_bytes": "with replicas (HSDP): the reduce-scatter's output, all-reduced over the replicas",
}
