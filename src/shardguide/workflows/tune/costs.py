"""What a set of settings costs: exact bytes held and moved on the rank that holds most.

"Moved" counts the tensors that enter and leave collectives and copies in one step (one forward and backward without
accumulation, activations not recomputed outside the wrapped modules); it is no statement about time.
"""

from __future__ import annotations

from shardguide.accounting import FlatGroup, Request, flat_groups, flat_per_rank, groups, per_rank
from shardguide.guidance.dtypes import ITEMSIZE
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.model import Model

from ..numbers import Layout, heaviest, request
from ..situation import Situation
from .now import UNKNOWN, Now


class Side(NamedTuple):
    """One column of the table."""

    now: Now
    layout: Layout | None  # None: the sharding is not known


class Costs(NamedTuple):
    """Exact bytes; None where something that decides them is not known or not worked out."""

    device: int | None = None
    host: int | None = None
    largest_gather: int | None = None
    largest_scatter: int | None = None
    gathered: int | None = None  # a step, all groups
    scattered: int | None = None
    reduced: int | None = None  # all-reduces: DDP's gradients, or a replica's gradient shards
    to_device: int | None = None  # host to device copies of shards
    to_host: int | None = None  # gradient shards
    assumed: tuple[str, ...] = ()  # what the numbers rest on that was not read, or why there are none


def costs(s: Situation, side: Side) -> Costs:
    """The accounting of one column."""
    layout, now = side.layout, side.now
    if layout is None or not s.model.parameters or (now.offload == UNKNOWN and layout.strategy != "none"):
        return Costs()
    try:
        if layout.strategy == "none":
            return _replicated(s, layout, now)
        if now.api == "fsdp1":
            return _fsdp1(s, layout, now)
        return _fsdp2(s, layout, now) if now.api == "fsdp2" else Costs()
    except UnusableInput as error:  # a combination that PyTorch refuses: said in the row, not an end of everything
        return Costs(assumed=(str(error),))


def _known(text: str) -> str:
    return "" if text == UNKNOWN else text


def reduced_in(s: Situation, now: Now) -> str:
    """The dtype of the gradients' reduction, "" for the parameters' own; UNKNOWN if it cannot be read.

    Without reduce_dtype FSDP1 takes param_dtype, FSDP2 too up to 2.14 and the parameter's dtype from 2.15 on.
    """
    if now.reduce or (now.api == "fsdp2" and s.minor >= (2, 15)):
        return now.reduce
    return now.param


def _replicated(s: Situation, layout: Layout, now: Now) -> Costs:
    """DDP: everything on every rank, and one all-reduce of every gradient in the parameters' dtype."""
    run = heaviest(per_rank(request(s, layout)))
    if now.api != "ddp":  # FSDP1's NO_SHARD reduces flat parameters; what it moves is not worked out
        return Costs(run.device_bytes, run.host_bytes)
    moved = run.gradient_bytes if layout.replicate * layout.shard > 1 else 0
    return Costs(run.device_bytes, run.host_bytes, 0, 0, 0, 0, moved, 0, 0)


def _wrapped(model: Model, now: Now) -> Model:
    """The model with the units that these settings wrap; the rest is the root's."""
    if now.wrapping is None:
        return model
    return model._replace(units=tuple(unit for unit in model.units if unit.role in now.wrapping))


def _fsdp2(s: Situation, layout: Layout, now: Now) -> Costs:
    reduce = reduced_in(s, now)
    asked = request(s, layout, (_known(now.param), _known(reduce)), bool(now.offload))
    asked = asked._replace(model=_wrapped(s.model, now))
    run = heaviest(per_rank(asked))
    roles = {unit.modules: unit.role for unit in s.model.units}
    counts = dict(now.gathers)
    gathered: int | None = 0 if now.param != UNKNOWN else None
    copied: int | None = 0
    made = groups(asked)
    kept = groups(asked._replace(mp_param_dtype="", mp_reduce_dtype=""))  # the shards in their own dtype
    for group, own in zip(made, kept, strict=True):
        times = _times(counts, roles.get(group.modules, "root"), group.reduce_scatter_bytes != 0)
        # One rank alone copies its shard over without a collective, so its own part counts for offload.
        shard = (own.unsharded_bytes or 0) // own.shard_size if own.unsharded_bytes is not None else None
        gathered = _add(gathered, group.all_gather_bytes, times)
        copied = _add(copied, shard, times)
    known = reduce != UNKNOWN
    whole = [group.all_gather_bytes if now.param != UNKNOWN else None for group in made]
    scatter = [group.reduce_scatter_bytes if known else None for group in made]
    shared = [group.all_reduce_bytes if known else None for group in made]
    return Costs(
        run.device_bytes,
        run.host_bytes,
        _largest(whole),
        _largest(scatter),
        gathered,
        _sum(scatter),
        _sum(shared),
        copied if now.offload else 0,
        run.gradient_bytes if now.offload else 0,
        now.assumed,
    )


def _fsdp1(s: Situation, layout: Layout, now: Now) -> Costs:
    """Flat parameters; with CPUOffload parameters, gradients and optimizer state lie in host memory, buffers do not."""
    assumed = list(now.assumed)
    roles = ("block",) if now.wrapping is None else now.wrapping
    orig = now.orig_params
    if orig is None:
        assumed.append("use_orig_params=True")
        orig = True
    if now.param == UNKNOWN and orig:
        assumed.append("parameters aligned as in their own dtype")
    asked = request(s, layout._replace(placements=()), (_known(now.param), _known(reduced_in(s, now))))
    asked = asked._replace(use_orig_params=orig)
    run = heaviest(flat_per_rank(asked, roles))
    made = flat_groups(asked, roles)
    counts = dict(now.gathers)
    gathered: int | None = 0 if now.param != UNKNOWN else None
    for group in made:
        times = _times(counts, "root" if group.root else "block", group.trainable)
        gathered = _add(gathered, group.all_gather_bytes, times)
    whole = [group.all_gather_bytes if now.param != UNKNOWN else None for group in made]
    known = reduced_in(s, now) != UNKNOWN
    scatter = [group.reduce_scatter_bytes if known else None for group in made]
    shared = [group.all_reduce_bytes if known else None for group in made]
    device, host = _flat_held(s, asked, run.device_bytes, run.host_bytes, now)
    return Costs(
        device,
        host,
        _largest(whole),
        _largest(scatter),
        gathered,
        _sum(scatter),
        _sum(shared),
        _flat_copies(made) if now.offload else 0,
        run.gradient_bytes if now.offload else 0,
        tuple(assumed),
    )


def _flat_copies(made: tuple[FlatGroup, ...]) -> int | None:
    """Every shard goes to the device before forward and again before backward, the root's too.

    ``FlatParamHandle.pre_unshard`` copies whenever it is called while offloading, also where the parameters were kept.
    """
    return 2 * sum(group.shard_bytes for group in made) if all(group.trainable for group in made) else None


def _flat_held(
    s: Situation, asked: Request, device: int | None, host: int | None, now: Now
) -> tuple[int | None, int | None]:
    """(device, host) bytes between steps; buffers in buffer_dtype, which FSDP1 casts them to for good."""
    own = cast = 0
    for buffer in s.model.buffers:
        numel = 1
        for extent in buffer.shape:
            numel *= extent
        own += numel * ITEMSIZE[buffer.dtype]
        floating = buffer.dtype.startswith(("float", "bfloat"))
        cast += numel * ITEMSIZE[now.buffer if floating and _known(now.buffer) else buffer.dtype]
    if now.buffer == UNKNOWN and own:
        return None, None if device is None or not now.offload else device + (host or 0) - own
    if device is None or host is None:
        return None, None
    if not now.offload:
        return device - own + cast, host
    if any(parameter.ignored for parameter in asked.model.parameters):
        return None, None  # where FSDP1 leaves ignored parameters is not worked out
    return cast, device - own + host


def _times(counts: dict[str, int], role: str, trainable: bool) -> int | None:
    """All-gathers a step of a group; a frozen one that is freed after forward is gathered again only if its input has a gradient."""
    times = counts.get(role) or None
    return times if trainable or times == 1 else None


def _add(total: int | None, each: int | None, times: int | None) -> int | None:
    return None if total is None or each is None or times is None else total + each * times


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)


def _largest(values: list[int | None]) -> int | None:
    return None if None in values else max((value or 0 for value in values), default=None)
