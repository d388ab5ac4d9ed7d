"""Per-parameter sharding of fully_shard (FSDP2), counted for every rank without looping over ranks.

Source: ``torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam._init_sharded_param``. A parameter of extent d on
its shard dim is cut by torch.chunk into pieces of c = ceil(d / W); the last non-empty piece may be shorter, the ranks
after it own nothing. Every rank's storage is padded to the first piece's size, and so is the flat reduce-scatter
output that the sharded gradients are views of (``_fsdp_collectives.foreach_reduce``). Optimizers create their state
from the sharded parameter, which is not padded.

What a rank owns changes with its shard index at d // c and one after, so a few evaluations describe any world.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardguide.guidance.dtypes import ITEMSIZE
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Fact

from . import optimizers
from .records import SHARDED, RankRun, Request
from .survey import Kind, Survey, take


class Piece(NamedTuple):
    """One kind of parameter on one tensor-parallel rank, cut for a shard group."""

    kind: Kind
    times: int
    local: tuple[int, ...]  # shape before fully_shard
    numel: int  # of local
    whole: bool  # not cut at all: ignored, or a shard group of one
    extent: int  # of the shard dim
    chunk: int  # rows of the first piece
    row: int  # elements per row

    def owned(self, shard: int) -> int:
        """Elements of one such parameter that the rank at this shard index owns."""
        if self.whole:
            return self.numel
        return max(0, min(self.chunk, self.extent - self.chunk * shard)) * self.row

    @property
    def stored(self) -> int:
        """Elements that every rank's storage holds of it."""
        return self.chunk * self.row


def cut(kind: Kind, count: int, tp_size: int, tp_rank: int, shard_size: int) -> Piece:
    """The piece that a kind leaves on a tensor-parallel rank."""
    local = kind.local(tp_size, tp_rank)
    numel = 1
    for extent in local:
        numel *= extent
    if kind.ignored or shard_size == 1:
        return Piece(kind, count, local, numel, True, 1, 1, numel)
    extent = local[kind.dim]
    return Piece(kind, count, local, numel, False, extent, -(-extent // shard_size), numel // extent if extent else 0)


def starts(pieces: Iterable[Piece], shard_size: int) -> list[int]:
    """The shard indices at which what a rank owns may change, ascending, from 0."""
    marks = {0}
    for piece in pieces:
        if piece.chunk and not piece.whole:
            full = piece.extent // piece.chunk
            marks.add(full)
            if piece.extent % piece.chunk:
                marks.add(full + 1)
    return sorted(mark for mark in marks if mark < shard_size)


def per_rank(request: Request, survey: Survey | None = None) -> tuple[RankRun, ...]:
    """What every rank of the world holds, as runs of equal ranks; () when only the model's size is known.

    Raises UnusableInput where fully_shard refuses the shapes.
    """
    if not request.model.parameters:
        return ()
    survey = take(request) if survey is None else survey
    layout, shard_size = request.layout, survey.shard_size
    tp_ranks = layout.tp_size if any(kind.tp_dim >= 0 for kind in survey.kinds) else 1
    columns: list[list[tuple[int, tuple[int | None, ...]]]] = []  # per tp rank: (first shard index, values)
    seen: dict[tuple[tuple[int, ...], ...], list[tuple[int, tuple[int | None, ...]]]] = {}
    for tp_rank in range(tp_ranks):
        pieces = [
            cut(k, n, layout.tp_size, tp_rank, shard_size) for k, n in zip(survey.kinds, survey.counts, strict=True)
        ]
        shapes = tuple(piece.local for piece in pieces)
        column = seen.get(shapes)
        if column is None:
            common = _same_on_all(request, pieces)
            column = [(s, _values(request, pieces, s, common)) for s in starts(pieces, shard_size)]
            seen[shapes] = column
        columns.append(column)
    return _runs(columns, shard_size, survey.replicate_size, layout.tp_size)


def _runs(
    columns: list[list[tuple[int, tuple[int | None, ...]]]], shard_size: int, replicas: int, tp_size: int
) -> tuple[RankRun, ...]:
    """Lay the columns out in rank order, (replicate, shard, tp), and merge neighbours that are equal."""
    merged: list[tuple[int, int, tuple[int | None, ...]]] = []  # first, last, values

    def put(first: int, last: int, values: tuple[int | None, ...]) -> None:
        if merged and merged[-1][2] == values:
            merged[-1] = (merged[-1][0], last, values)
        else:
            merged.append((first, last, values))

    first_column = columns[0]
    if all(column is first_column for column in columns):
        ends = [start for start, _ in first_column[1:]] + [shard_size]
        for (start, values), end in zip(first_column, ends, strict=True):
            put(start * tp_size, end * tp_size - 1, values)
    else:
        at = [0] * len(columns)
        for shard in range(shard_size):
            for tp_rank, column in enumerate(columns):
                if at[tp_rank] + 1 < len(column) and column[at[tp_rank] + 1][0] == shard:
                    at[tp_rank] += 1
                rank = shard * tp_size + tp_rank
                put(rank, rank, column[at[tp_rank]][1])
    size = shard_size * tp_size
    if len(merged) == 1:
        return (RankRun(0, size * replicas - 1, *merged[0][2]),)  # type: ignore[arg-type]
    once = list(merged)
    for replica in range(1, replicas):
        for first, last, values in once:
            put(first + replica * size, last + replica * size, values)
    return tuple(RankRun(first, last, *values) for first, last, values in merged)  # type: ignore[arg-type]


class _Common(NamedTuple):
    """What does not depend on the shard index."""

    stored: int
    parameter_bytes: int | None
    ignored_parameter_bytes: int | None
    gradient_bytes: int | None  # padded
    ignored_gradient_bytes: int | None
    scalars: int | None
    buffers: int


def _product(pieces: Iterable[Piece]) -> int | None:
    """Bytes of the stored elements; None when a dtype is not known."""
    total = 0
    for piece in pieces:
        if not piece.kind.itemsize:
            return None
        total += piece.times * piece.stored * piece.kind.itemsize
    return total


def _same_on_all(request: Request, pieces: list[Piece]) -> _Common:
    ignored = [piece for piece in pieces if piece.kind.ignored]
    trainable = [piece for piece in pieces if piece.kind.trainable]
    scalars: int | None = 0
    status = optimizers.support(request).status if request.optimizer else optimizers.OPEN
    for piece in trainable:
        found = optimizers.state_elements(piece.kind, piece.local, 0, request) if status == optimizers.EXACT else None
        scalars = None if found is None or scalars is None else scalars + piece.times * found[1]
    if status != optimizers.EXACT:
        scalars = None
    buffers = 0
    for buffer in request.model.buffers:
        numel = ITEMSIZE[buffer.dtype]
        for extent in buffer.shape:
            numel *= extent
        buffers += numel
    return _Common(
        stored=sum(piece.times * piece.stored for piece in pieces),
        parameter_bytes=_product(pieces),
        ignored_parameter_bytes=_product(ignored),
        gradient_bytes=_product(trainable),
        ignored_gradient_bytes=_product(piece for piece in trainable if piece.kind.ignored),
        scalars=None if scalars is None else scalars * optimizers.SCALAR_BYTES,
        buffers=buffers,
    )


def _values(request: Request, pieces: list[Piece], shard: int, common: _Common) -> tuple[int | None, ...]:
    """The fields of RankRun after the two ranks."""
    offload = request.offload and request.strategy in SHARDED
    owned_total = 0
    gradients: int | None = 0  # of owned elements, what a gradient copied to the host takes
    state: int | None = 0 if common.scalars is not None else None
    ignored_state = 0
    for piece in pieces:
        kind, owned = piece.kind, piece.owned(shard)
        owned_total += piece.times * owned
        if not kind.trainable:
            continue
        size = kind.itemsize
        if not kind.ignored and gradients is not None:
            gradients = gradients + piece.times * owned * size if size else None
        if state is not None:
            found = optimizers.state_elements(kind, piece.local, owned, request)
            if found is None or (not size and found[0]):
                state = None
            else:
                state += piece.times * found[0] * size
                if kind.ignored:
                    ignored_state += piece.times * found[0] * size
    gradient_bytes = common.gradient_bytes
    if offload:
        known = gradients is not None and common.ignored_gradient_bytes is not None
        gradient_bytes = gradients + common.ignored_gradient_bytes if known else None  # type: ignore[operator]
    everything = (common.parameter_bytes, gradient_bytes, state, common.scalars)
    device: int | None = None
    host: int | None = None
    if None not in everything:
        total = sum(everything) + common.buffers  # type: ignore[arg-type]
        scalars = common.scalars or 0
        if offload:
            # What fully_shard does not manage stays where the model was put; its scalars follow the optimizer's rule.
            device = common.buffers + (common.ignored_parameter_bytes or 0) + (common.ignored_gradient_bytes or 0)
            device += ignored_state
            host = total - device
        else:
            on_device = optimizers.scalars_on_device(request.optimizer, request.hyper)
            host = 0 if on_device else scalars
            device = total - host
    return (
        owned_total, common.stored, common.parameter_bytes, gradient_bytes, state, common.scalars, common.buffers,
        device, host,
    )  # fmt: skip


def lives(request: Request) -> dict[str, str]:
    """Where each field of RankRun lies: "device" or "host".

    With CPUOffloadPolicy the parameters, gradients and optimizer state of everything that fully_shard manages are in
    host memory; ignored parameters and buffers are not. ``device_bytes`` and ``host_bytes`` of each run count them so.
    """
    managed = "host" if request.offload and request.strategy in SHARDED else "device"
    scalars = "device" if optimizers.scalars_on_device(request.optimizer, request.hyper) else "host"
    return {
        "parameter_bytes": managed,
        "gradient_bytes": managed,
        "optimizer_bytes": managed,
        "optimizer_scalar_bytes": "host" if managed == "host" else scalars,
        "buffer_bytes": "device",
    }


def lower_bounds(request: Request) -> tuple[Fact, ...]:
    """What a model's size alone allows to say; () when its shapes are known.

    With N elements over W x T ranks (shard size times tensor-parallel size) the ranks together own at least N, so some
    rank owns at least N / (W x T), and every rank of that shard group stores at least as much.
    """
    model = request.model
    if model.parameters or not model.stated_size:
        return ()
    layout = request.layout
    ways = (layout.shard_size if request.strategy in SHARDED else 1) * layout.tp_size
    count = model.stated_size
    least = -(-count // ways)
    facts = [
        Fact("accounting.parameters", count, "elements", "as stated"),
        Fact(
            "accounting.stored_parameters_at_least", least, "elements",
            f"lower bound, shapes unknown: ceil({count} / {ways}); padding comes on top",
        ),
    ]  # fmt: skip
    size = ITEMSIZE.get(request.param_dtype, 0)
    if size:
        text = f"lower bound: {least} elements x {size} bytes"
        facts.append(Fact("accounting.parameter_bytes_at_least", least * size, "bytes", text))
        facts.append(Fact("accounting.gradient_bytes_at_least", least * size, "bytes", f"{text}, if all are trained"))
        status = optimizers.optimizer_support(request.optimizer, request.release, request.strategy).status
        found = (
            optimizers.state(request.optimizer, request.hyper, request.release) if status == optimizers.EXACT else None
        )
        if found is not None:
            facts.append(
                Fact(
                    "accounting.optimizer_bytes_at_least", least * size * found.tensors, "bytes",
                    f"{text} x {found.tensors} state tensors, on the fullest rank",
                )
            )  # fmt: skip
    return tuple(facts)
