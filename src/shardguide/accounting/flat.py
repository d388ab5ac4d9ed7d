"""FSDP1: every wrapped module's parameters flattened into one, padded, and cut into equal shards.

Source: ``torch.distributed.fsdp._flat_param.FlatParamHandle``. With ``use_orig_params=True`` each parameter starts at a
multiple of 16 bytes in the compute dtype (``_get_aligned_numel``) and the whole is padded to a multiple of W; without
it the flat tensor is cut by torch.chunk and its last shards are padded. Either way each rank stores ceil(total / W)
elements. What it owns are the elements of the model's parameters among them.

Optimizer state follows what the optimizer is given: with ``use_orig_params=True`` the part of each parameter that lies
in this rank's shard (a parameter with none has no gradient there and gets no state), without it the flat shard,
padding included.
"""

from __future__ import annotations

from shardguide.guidance.dtypes import ITEMSIZE
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple

from . import optimizers
from .records import RankRun, Request
from .survey import Kind, Survey, take

ALIGNMENT = 16  # bytes


class Flat(NamedTuple):
    """One FlatParameter."""

    offsets: tuple[tuple[int, int, Kind], ...]  # [start, end) of each parameter and its kind
    chunk: int  # elements of each rank's shard
    itemsize: int
    trainable: bool


class FlatGroup(NamedTuple):
    """The collectives of one FlatParameter: sizes of their tensors on each rank, not traffic."""

    root: bool  # whatever no wrapped module holds
    trainable: bool
    shard_bytes: int  # this rank's padded shard, in the dtype it is kept in: what CPU offload copies
    all_gather_bytes: int  # the all-gather's output, in the compute dtype; 0 for one rank
    reduce_scatter_bytes: (
        int  # the reduce-scatter's input, in the reduce dtype; 0 for one rank and for frozen parameters
    )
    all_reduce_bytes: int  # HYBRID_SHARD: the reduce-scatter's output, all-reduced over the replicas; else 0


def flat_groups(request: Request, roles: tuple[str, ...] = ("block",)) -> tuple[FlatGroup, ...]:
    """One entry for every FlatParameter, wrapped as in ``flat_per_rank``; () when only the size is known.

    Sources (PyTorch 2.13): ``FlatParamHandle._all_gather_flat_param`` gathers W shards into one tensor,
    ``_runtime_utils._get_reduce_scatter_tensors`` pads the unsharded gradient to W chunks, and
    ``FlatParamHandle._init_param_reduce_dtypes`` reduces in param_dtype where that alone is given.

    Raises UnusableInput as ``flat_per_rank`` does.
    """
    if not request.model.parameters:
        return ()
    if request.layout.tp_size > 1:
        raise UnusableInput("Flat parameters with tensor parallelism are not worked out; use fully_shard.")
    asked = request._replace(placements=None, mp_reduce_dtype=request.mp_reduce_dtype or request.mp_param_dtype)
    survey = take(asked)
    ways, replicas = survey.shard_size, survey.replicate_size
    wrapped = {module for unit in request.model.units if unit.role in roles for module in unit.modules}
    known: dict[tuple[int, ...], FlatGroup] = {}
    found = []
    for held in _wrapped(asked, roles):
        signature = tuple([survey.of[at] for at in held])
        group = known.get(signature)
        if group is None:
            flat = _flatten(asked, survey, signature)
            first = survey.kinds[signature[0]]
            gathered = flat.chunk * ways * first.compute_itemsize if ways > 1 else 0
            reduced = flat.chunk * first.reduce_itemsize if flat.trainable else 0
            scattered = reduced * ways if ways > 1 else 0
            shared = reduced if replicas > 1 else 0
            group = FlatGroup(False, flat.trainable, flat.chunk * flat.itemsize, gathered, scattered, shared)
            known[signature] = group
        name = asked.model.parameters[held[0]].name
        found.append(group._replace(root=not _inside(name, wrapped)))
    return tuple(found)


def _inside(name: str, modules: set[str]) -> bool:
    """Whether a parameter lies in one of the modules."""
    module = name.rpartition(".")[0]
    while module:
        if module in modules:
            return True
        module = module.rpartition(".")[0]
    return False


def flat_per_rank(request: Request, roles: tuple[str, ...] = ("block",)) -> tuple[RankRun, ...]:
    """What every rank holds under FullyShardedDataParallel; () when only the size is known.

    Wrapped are the units whose role is in ``roles``, module by module, as transformer_auto_wrap_policy does with the
    block classes, and the root, which flattens the rest. FULL_SHARD and SHARD_GRAD_OP hold the same; with a replicate
    size above 1 the layout is HYBRID_SHARD's.

    Raises UnusableInput where FSDP1 refuses: mixed or unknown dtypes in a flat parameter, integers, and frozen next to
    trainable parameters without use_orig_params.
    """
    if not request.model.parameters:
        return ()
    if request.layout.tp_size > 1:
        raise UnusableInput("Flat parameters with tensor parallelism are not worked out; use fully_shard.")
    survey = take(request._replace(placements=None))
    ways = survey.shard_size
    known: dict[tuple[int, ...], Flat] = {}
    flats: dict[Flat, int] = {}
    for held in _wrapped(request, roles):
        signature = tuple([survey.of[at] for at in held])
        flat = known.get(signature)
        if flat is None:
            flat = known[signature] = _flatten(request, survey, signature)
        flats[flat] = flats.get(flat, 0) + 1

    marks = {0}
    for flat in flats:
        for start, end, _ in flat.offsets:
            for edge in (start, end):
                marks.update((edge // flat.chunk, edge // flat.chunk + 1))
    starts = sorted(mark for mark in marks if mark < ways)
    merged: list[tuple[int, int, tuple[int | None, ...]]] = []
    for first, after in zip(starts, [*starts[1:], ways], strict=True):
        values = _values(request, survey, flats, first)
        if merged and merged[-1][2] == values:
            merged[-1] = (merged[-1][0], after - 1, values)
        else:
            merged.append((first, after - 1, values))
    if len(merged) == 1:
        return (RankRun(0, request.layout.world - 1, *merged[0][2]),)  # type: ignore[arg-type]
    return tuple(
        RankRun(first + replica * ways, last + replica * ways, *values)  # type: ignore[arg-type]
        for replica in range(survey.replicate_size)
        for first, last, values in merged
    )


def _wrapped(request: Request, roles: tuple[str, ...]) -> list[list[int]]:
    """Indices of the parameters of each wrapped module, and last of the root; ignored parameters are in none."""
    owner = {
        module: n
        for n, (module, role) in enumerate((m, u.role) for u in request.model.units for m in u.modules)
        if role in roles
    }
    held: dict[int, list[int]] = {}
    rest: list[int] = []
    for at, parameter in enumerate(request.model.parameters):
        if parameter.ignored:
            continue
        place = rest
        module = parameter.name.rpartition(".")[0]
        while module:
            number = owner.get(module)
            if number is not None:
                place = held.setdefault(number, [])
                break
            module = module.rpartition(".")[0]
        place.append(at)
    return [*held.values(), rest] if rest else list(held.values())


def _flatten(request: Request, survey: Survey, signature: tuple[int, ...]) -> Flat:
    kinds = [survey.kinds[number] for number in signature]
    first = kinds[0]
    if any(not kind.itemsize for kind in kinds):
        raise UnusableInput(f"FSDP1 flattens {first.name} with others, so its dtype must be known; give --param-dtype.")
    if len({(kind.dtype) for kind in kinds}) != 1:
        raise UnusableInput(
            f"FSDP1 must flatten tensors with uniform dtype, and the module of {first.name} mixes several."
        )
    if not request.use_orig_params and len({kind.trainable for kind in kinds}) != 1:
        raise UnusableInput(
            "FSDP1 does not wrap a module with both frozen and trainable parameters when use_orig_params=False, "
            f"such as that of {first.name}."
        )
    align = ALIGNMENT // first.compute_itemsize if request.use_orig_params else 1
    total = 0
    offsets = []
    for kind in kinds:
        total += -total % align
        numel = 1
        for extent in kind.shape:
            numel *= extent
        offsets.append((total, total + numel, kind))
        total += numel
    ways = survey.shard_size
    return Flat(tuple(offsets), max(1, -(-total // ways)), first.itemsize, any(kind.trainable for kind in kinds))


def _values(request: Request, survey: Survey, flats: dict[Flat, int], shard: int) -> tuple[int | None, ...]:
    """The fields of RankRun after the two ranks, for the rank at this shard index."""
    owned = stored = parameter_bytes = gradient_bytes = 0
    status = (
        optimizers.optimizer_support(request.optimizer, request.release, "none").status if request.optimizer else ""
    )
    found = optimizers.state(request.optimizer, request.hyper, request.release) if status == optimizers.EXACT else None
    if request.optimizer == "muon":  # flat parameters are 1-D
        found = None
    state = scalars = 0
    for flat, count in flats.items():
        low, high = shard * flat.chunk, (shard + 1) * flat.chunk
        stored += count * flat.chunk
        parameter_bytes += count * flat.chunk * flat.itemsize
        if flat.trainable:
            gradient_bytes += count * flat.chunk * flat.itemsize
        if flat.trainable and not request.use_orig_params and found is not None:
            state += count * found.tensors * flat.chunk * flat.itemsize
            scalars += count * found.scalars
        for start, end, kind in flat.offsets:
            part = min(end, high) - max(start, low)
            if part <= 0:
                part = 0
            owned += count * part
            if request.use_orig_params and kind.trainable and found is not None:
                state += count * found.tensors * part * flat.itemsize
                # Adagrad makes its state when it is constructed, for every parameter, also those without a part here.
                if part or request.optimizer == "adagrad":
                    scalars += count * found.scalars
    for kind, count in zip(survey.kinds, survey.counts, strict=True):
        if not kind.ignored:
            continue
        numel = 1
        for extent in kind.shape:
            numel *= extent
        owned += count * numel
        stored += count * numel
        parameter_bytes += count * numel * kind.itemsize
        if kind.trainable:
            gradient_bytes += count * numel * kind.itemsize
            if found is not None:
                state += count * found.tensors * numel * kind.itemsize
                scalars += count * found.scalars
    buffers = 0
    for buffer in request.model.buffers:
        numel = ITEMSIZE[buffer.dtype]
        for extent in buffer.shape:
            numel *= extent
        buffers += numel
    if found is None:
        return owned, stored, parameter_bytes, gradient_bytes, None, None, buffers, None, None
    scalar_bytes = scalars * optimizers.SCALAR_BYTES
    device: int | None = None
    host: int | None = None
    if not request.offload:  # where FSDP1's CPUOffload leaves ignored parameters and gradients is not worked out
        on_device = optimizers.scalars_on_device(request.optimizer, request.hyper)
        host = 0 if on_device else scalar_bytes
        device = parameter_bytes + gradient_bytes + state + scalar_bytes + buffers - host
    return owned, stored, parameter_bytes, gradient_bytes, state, scalar_bytes, buffers, device, host
