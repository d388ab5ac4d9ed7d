"""What training adds for a while to the states: buffers of the collectives, and what each choice keeps longer.

All values are device bytes on each rank (TP rank 0), of tensors that PyTorch holds references to: neither allocator
rounding, nor activations, nor what a collective's library allocates for itself. Every rule was read in PyTorch 2.13's
source, at the object named in SOURCES, and run there; ``tests/accounting/test_transients.py`` repeats the runs.
"""

from __future__ import annotations

from itertools import pairwise

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Fact

from .group import ROOT, members
from .records import SHARDED, Request, release_minor
from .shards import Piece, cut
from .survey import Survey, take

_PACKAGE = "torch.distributed.fsdp._fully_shard."
_COLLECTIVES = f"{_PACKAGE}_fsdp_collectives"
_GROUP = f"{_PACKAGE}_fsdp_param_group.FSDPParamGroup"
_PARAM = f"{_PACKAGE}_fsdp_param.FSDPParam"
_STATE = f"{_PACKAGE}_fsdp_state.FSDPState"

# Fact id -> (dotted object, words of its source that say so); a test finds them again in PyTorch 2.13.0.
SOURCES: dict[str, tuple[str, str]] = {
    "transient.unsharded_group": (f"{_PARAM}.init_all_gather_outputs", "torch.Size([numel * world_size])"),
    "transient.unsharded_root": (f"{_STATE}._lazy_init", "For the root, do not reshard after forward"),
    "transient.all_gather_outputs": (f"{_GROUP}.wait_for_unshard", "free the all-gather result"),
    "transient.all_gather_prefetched": (f"{_GROUP}._backward_prefetch", "post_forward_order[curr_index - 1]"),
    "transient.all_gather_copy_in": (f"{_COLLECTIVES}._get_param_all_gather_inputs", "flat_foreach_copy_input ="),
    "transient.shard_dim_copies": (f"{_COLLECTIVES}.foreach_all_gather_copy_out", "torch.empty_like(t)"),
    "transient.unsharded_gradients": (f"{_GROUP}.post_backward", "unsharded_grads.append("),
    "transient.reduce_scatter_input": (f"{_COLLECTIVES}.foreach_reduce", "(reduce_scatter_input_numel,)"),
    "transient.reduce_scatter_output": (f"{_COLLECTIVES}.foreach_reduce", "(reduce_scatter_output_numel,)"),
    "transient.hsdp_retained": (f"{_GROUP}.post_backward", "self._all_reduce_state = AllReduceState("),
    "transient.hsdp_partial": (f"{_COLLECTIVES}.foreach_reduce", "partial_reduce_output = reduce_output"),
    "transient.unsharded_model": (f"{_GROUP}.reshard", "if not self._reshard_after_forward:"),
    "transient.resharded_to_int": (f"{_PARAM}.to_sharded_post_forward", "clone to be able to free all-gather output"),
    "transient.accumulated_gradients": (f"{_PARAM}.to_accumulated_grad_if_needed", "unsharded_grad.to("),
    "transient.ddp_buckets": (
        "torch.nn.parallel.DistributedDataParallel",
        "saved memory size will be equal to the total gradients",
    ),
}


class _Sizes(NamedTuple):
    """Bytes of one group on one rank; 0 where it has none."""

    unsharded: int
    gathered: int  # all-gather output
    copy_in: int
    dim_copies: int
    gradients: int  # unsharded, as autograd leaves them
    scattered: int  # reduce-scatter input
    reduced: int  # reduce-scatter output
    cast: int  # reduce-scatter output where it is not the gradient itself
    accumulated: int


def transients(request: Request, survey: Survey | None = None) -> tuple[Fact, ...]:
    """The facts that apply to a request, each with its formula; () when only the size or no dtype is known."""
    if not request.model.parameters:
        return ()
    survey = take(request) if survey is None else survey
    if any(not kind.itemsize for kind in survey.kinds):
        return ()
    if request.strategy not in SHARDED:
        return _ddp(request, survey)
    order, root = _forward_order(request, survey)
    facts: list[Fact] = []

    def add(id_: str, value: int, formula: str) -> None:
        facts.append(Fact(f"transient.{id_}", value, "bytes", formula))

    ways, minor = survey.shard_size, release_minor(request.release)
    keep = request.reshard_after_forward
    # reshard_after_forward=1 is an int that means False; the shard size means True.
    int_size = keep if keep is not None and not isinstance(keep, bool) and 1 < keep < ways else 0
    kept = request.strategy == "grad_op" or keep is False or (not isinstance(keep, bool) and keep == 1)
    # The root's own reshard_after_forward counts from 2.8 on, unless it is None.
    root_kept = root is not None and (keep is None or minor < (2, 8)) and not kept

    add(
        "unsharded_group",
        max(g.unsharded for g in order),
        "largest group: W x padded shard elements x bytes in the compute dtype",
    )
    if kept:
        total = sum(g.unsharded for g in order)
        add(
            "unsharded_model",
            total,
            "reshard_after_forward=False: all groups unsharded, from forward to their backward",
        )
    elif int_size:
        inner = [g for g in order if not (g is root and root_kept)]
        held = sum(g.unsharded for g in inner) // int_size
        add(
            "resharded_to_int",
            held,
            f"reshard_after_forward={int_size}: unsharded bytes / {int_size}, kept from forward to backward",
        )
    if root_kept and root is not None:
        add(
            "unsharded_root",
            root.unsharded,
            "the root group's parameters stay unsharded from its forward to its backward",
        )
    if ways > 1:
        pairs = [a.gathered + b.gathered for a, b in pairwise(order)]
        add(
            "all_gather_outputs", max(pairs or [order[0].gathered]),
            "forward: a group's all-gather output stays until the next group's has arrived; "
            "largest sum of two neighbours in the order root, embedding, blocks, head",
        )  # fmt: skip
        prefetched = [g.gathered for g in order if not (g is root and root_kept)]
        if not kept and prefetched:
            add(
                "all_gather_prefetched",
                max(prefetched),
                "backward: the next group's all-gather output arrives while this one computes",
            )
        add(
            "all_gather_copy_in", max(g.copy_in for g in order),
            "padded shard elements x bytes in the compute dtype, of the parameters that are cast (with offload: of "
            "all, copied to the device); 0 where they are gathered as they are",
        )  # fmt: skip
        if any(g.dim_copies for g in order):
            add(
                "shard_dim_copies",
                max(g.dim_copies for g in order),
                "parameters sharded on a dim above 0 pass through one more unsharded copy",
            )
    add(
        "unsharded_gradients",
        max(g.gradients for g in order),
        "largest group: unsharded trainable elements x bytes in the compute dtype",
    )
    add(
        "reduce_scatter_input",
        max(g.scattered for g in order),
        "largest group: W x padded shard elements x bytes in the reduce dtype",
    )
    if any(g.cast for g in order):
        add(
            "reduce_scatter_output",
            max(g.cast for g in order),
            "reduce dtype is not the parameter's: the output is cast into the gradient",
        )
    if survey.replicate_size > 1:
        add(
            "hsdp_retained", sum(g.cast for g in order) if minor >= (2, 6) else 0,
            "all-reduced buffers kept to the end of backward: sum of padded shard elements x bytes in the reduce dtype "
            "if that is not the parameter's dtype, else 0 (they are the gradients)",
        )  # fmt: skip
        add(
            "hsdp_partial", sum(g.reduced for g in order),
            "accumulating with set_requires_all_reduce(False): the reduce-scattered gradients, in the reduce dtype",
        )  # fmt: skip
    add(
        "accumulated_gradients", sum(g.accumulated for g in order),
        "accumulating with set_requires_gradient_sync(False): unsharded gradients of the whole model, elements x "
        "bytes in "
        + ("reduce_dtype, else the parameter's dtype" if minor >= (2, 15) else "reduce_dtype, else the compute dtype"),
    )  # fmt: skip
    return tuple(facts)


def _ddp(request: Request, survey: Survey) -> tuple[Fact, ...]:
    total = 0
    for kind, count in zip(survey.kinds, survey.counts, strict=True):
        if kind.trainable and not kind.ignored:
            total += count * cut(kind, 1, request.layout.tp_size, 0, 1).numel * kind.itemsize
    formula = "gradient_as_bucket_view=False (the default): buckets hold every gradient once more; 0 with True"
    return (Fact("transient.ddp_buckets", total, "bytes", formula),)


def _forward_order(request: Request, survey: Survey) -> tuple[list[_Sizes], _Sizes | None]:
    """The groups in the order in which forward gathers them, and the root group, if it holds parameters."""
    pieces = [cut(kind, 1, request.layout.tp_size, 0, survey.shard_size) for kind in survey.kinds]
    alone = survey.shard_size == 1 and release_minor(request.release) >= (2, 9)
    known: dict[tuple[int, ...], _Sizes] = {}
    ranked: list[tuple[int, _Sizes]] = []
    root: _Sizes | None = None
    for _, role, parameters in members(request.model):
        signature = tuple([survey.of[at] for at in parameters])
        sizes = known.get(signature)
        if sizes is None:
            sizes = known[signature] = _measure(request, survey.shard_size, alone, [pieces[kind] for kind in signature])
        if role == ROOT:
            root = sizes = sizes._replace()  # an object of its own, told apart by identity
        ranked.append(({ROOT: 0, "embedding": 1, "head": 3}.get(role, 2), sizes))
    ranked.sort(key=lambda item: item[0])
    return [sizes for _, sizes in ranked], root


def _measure(request: Request, ways: int, alone: bool, pieces: list[Piece]) -> _Sizes:
    unsharded = copy_in = dim_copies = gradients = reduced = cast = accumulated = 0
    for piece in pieces:
        kind, padded, numel = piece.kind, piece.stored, piece.numel
        compute = kind.compute_itemsize
        unsharded += padded * ways * compute
        if kind.cast or request.offload:
            copy_in += padded * compute
        if kind.dim and ways > 1:
            dim_copies += padded * ways * compute
        if kind.trainable:
            size = kind.reduce_itemsize
            gradients += numel * compute
            reduced += padded * size
            if kind.reduce_cast:
                cast += padded * size
            accumulated += numel * size
    return _Sizes(
        unsharded, 0 if alone else unsharded, copy_in, dim_copies, gradients, reduced * ways, reduced, cast, accumulated
    )
