"""A model's parameters sorted into kinds that shard alike, so that everything else counts kinds, not parameters."""

from __future__ import annotations

from shardguide.guidance.dtypes import ITEMSIZE
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from . import tensor_parallel
from .records import SHARDED, STRATEGIES, Request, release_minor

_FLOATING = ("float", "bfloat")


class Kind(NamedTuple):
    """Parameters of one shape, dtype and treatment."""

    name: str  # of the first such parameter, for messages
    shape: tuple[int, ...]  # unsharded
    dtype: str  # in which the sharded parameter is kept; "": not known
    itemsize: int  # bytes per element of the sharded parameter; 0: dtype not known
    compute_itemsize: int  # bytes per element while unsharded; 0: not known
    reduce_itemsize: int  # bytes per element of its gradient in the reduce-scatter; 0: not known
    trainable: bool
    ignored: bool  # passed to ignored_params: whole on every rank
    dim: int  # dim that fully_shard splits
    tp_dim: int  # dim that tensor parallelism splits before; -1: none
    other: bool  # its optimizer is the second one (Muon's companion)
    cast: bool  # gathered in another dtype than it is kept in
    reduce_cast: bool  # its gradient is reduced in another dtype than it is kept in

    def local(self, layout_tp: int, tp_rank: int) -> tuple[int, ...]:
        """Shape on a tensor-parallel rank."""
        return tensor_parallel.local_shape(self.shape, self.tp_dim, layout_tp, tp_rank)


class Survey(NamedTuple):
    """Kinds, how often each occurs, and which one each parameter is (in the model's order)."""

    kinds: tuple[Kind, ...]
    counts: tuple[int, ...]
    of: tuple[int, ...]
    shard_size: int  # ranks that a parameter is split over; 1 for DDP
    replicate_size: int


def kept_dtype(own: str, param_dtype: str) -> str:
    """Dtype in which a parameter is kept: ``param_dtype`` if given and the parameter is floating-point, else its own.

    ``Module.to(dtype)`` casts floating-point tensors only.
    """
    if param_dtype and (not own or own.startswith(_FLOATING)):
        return param_dtype
    return own


def take(request: Request) -> Survey:
    """Sort the model's parameters into kinds.

    Raises UnusableInput where ``fully_shard`` itself would refuse: scalar parameters (ValueError), a dim above 0 that
    the shard size does not divide (NotImplementedError), a placement that is no dim of its tensor (AssertionError).
    """
    model, layout, strategy, param_dtype, mp_param_dtype = request[:5]
    if strategy not in STRATEGIES:
        raise UnusableInput(f"{strategy!r} is not a sharding strategy; use full, grad_op, hybrid or none.")
    if min(layout) < 1:
        raise UnusableInput("Every mesh dimension needs a size of at least 1.")
    sharded = strategy in SHARDED
    shard_size = layout.shard_size if sharded else 1
    replicate_size = layout.replicate_size if sharded else layout.replicate_size * layout.shard_size
    placements = request.placements
    by_name = placements if placements is not None and not callable(placements) else None
    call = placements if callable(placements) else None
    plan = {}
    if layout.tp_size > 1:
        plan = tensor_parallel.plan_of(model.tp_plan if request.tp_plan is None else request.tp_plan)
    others = frozenset(request.hyper.get("other_names", ()))
    plain = by_name is None and call is None and not plan and not others

    follows_parameter = release_minor(request.release) >= (2, 15)  # gradients without a reduce_dtype; see group.py
    index: dict[tuple[object, ...], int] = {}
    kinds: list[Kind] = []
    counts: list[int] = []
    of: list[int] = []
    for parameter in model.parameters:
        name, shape, own, trainable, _, ignored = parameter
        if plain:
            dim, style, other = 0, "", False
        else:
            asked = by_name.get(name) if by_name is not None else call(parameter) if call is not None else None
            dim = asked or 0
            style = tensor_parallel.style_of(name, plan) if plan else ""
            # A bias is split differently from a weight of the same shape, so it is another kind.
            if style and name.endswith(".bias"):
                style += " bias"
            other = name in others
        key = (shape, own, trainable, ignored, dim, style, other)
        at = index.get(key)
        if at is None:
            at = index[key] = len(kinds)
            dtype = kept_dtype(own, param_dtype)
            compute = mp_param_dtype if mp_param_dtype and (not dtype or dtype.startswith(_FLOATING)) else dtype
            reduced = request.mp_reduce_dtype or (dtype if follows_parameter else compute)
            tp_dim, _ = tensor_parallel.split(name, shape, style.removesuffix(" bias"), layout.tp_size)
            if sharded and not ignored:
                dim = _checked_dim(name, shape, dim, tp_dim, layout.tp_size, shard_size)
            kinds.append(
                Kind(
                    name, shape, dtype, ITEMSIZE.get(dtype, 0), ITEMSIZE.get(compute, 0), ITEMSIZE.get(reduced, 0),
                    trainable, ignored, dim, tp_dim, other, compute != dtype, reduced != dtype,
                )
            )  # fmt: skip
            counts.append(0)
        counts[at] += 1
        of.append(at)
    return Survey(tuple(kinds), tuple(counts), tuple(of), shard_size, replicate_size)


def _checked_dim(name: str, shape: tuple[int, ...], dim: int, tp_dim: int, tp_size: int, shard_size: int) -> int:
    if not shape:
        raise UnusableInput(
            f"fully_shard doesn't support scalar parameters: change {name} to a 1D tensor with numel equal to 1, "
            "or pass it in ignored_params."
        )
    if dim < 0:
        dim += len(shape)
    if not 0 <= dim < len(shape):
        raise UnusableInput(f"{name} has {len(shape)} dims, so it cannot be sharded on dim {dim}.")
    if dim > 0:
        for tp_rank in range(tp_size if tp_dim == dim else 1):
            extent = tensor_parallel.local_shape(shape, tp_dim, tp_size, tp_rank)[dim]
            if extent % shard_size:
                raise UnusableInput(
                    f"fully_shard does not support uneven sharding on dim {dim}: {name} has {extent} there, "
                    f"which {shard_size} ranks do not divide."
                )
    return dim
