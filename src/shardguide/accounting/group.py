"""Communication groups: which parameters travel together, and how large the collectives' tensors are on each rank.

Sources (PyTorch 2.13): ``_fsdp_collectives.foreach_all_gather`` allocates one output for the group,
W x (padded shard elements) in the compute dtype, as bytes where dtypes are mixed, and uses this rank's part of it as
input; ``foreach_all_gather_copy_out`` copies it into the unsharded parameters, padded alike; ``foreach_reduce``
allocates an input of W x (padded shard elements of the trainable parameters) in the reduce dtype and an output of 1/W
of it.
"""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.model import Model

from .records import SHARDED, Group, Request, release_minor
from .shards import Piece, cut
from .survey import Survey, take

ROOT = "root"


class Members(NamedTuple):
    """The parameters of one group, as indices into ``model.parameters``."""

    modules: tuple[str, ...]
    role: str  # the unit's role, "root" for the root
    parameters: list[int]


def members(model: Model) -> list[Members]:
    """Which group holds each parameter: the first unit, bottom-up, with a module that holds it; else the root (last).

    A group that would hold nothing is left out, as fully_shard creates none without parameters.
    """
    owner: dict[str, int] = {}
    for number, unit in enumerate(model.units):
        for module in unit.modules:
            owner.setdefault(module, number)
    nested = set()  # modules that contain another unit's module: no short cut there
    for module in owner:
        parent = module.rpartition(".")[0]
        while parent:
            if parent in owner:
                nested.add(parent)
            parent = parent.rpartition(".")[0]

    held: list[list[int]] = [[] for _ in range(len(model.units) + 1)]
    last_prefix, last_group = "", -1
    for at, parameter in enumerate(model.parameters):
        name, aliases = parameter[0], parameter[4]
        if parameter.ignored:
            continue
        if last_prefix and not aliases and name.startswith(last_prefix):
            held[last_group].append(at)
            continue
        group, prefix = len(model.units), ""
        for alias in (name, *aliases):
            module = alias.rpartition(".")[0]
            while module:
                owned_by = owner.get(module, group)
                if owned_by < group:
                    group, prefix = owned_by, module
                module = module.rpartition(".")[0]
        held[group].append(at)
        # A tied parameter says nothing about its neighbours: it may have been claimed through another name.
        last_prefix = f"{prefix}." if prefix and prefix not in nested and not aliases else ""
        last_group = group
    found = [Members(unit.modules, unit.role, held[n]) for n, unit in enumerate(model.units) if held[n]]
    if held[-1]:
        found.append(Members((), ROOT, held[-1]))
    return found


def split_ties(model: Model) -> tuple[tuple[str, str], ...]:
    """Tied parameters whose modules fall into different groups, as pairs of names.

    From 2.12 on the first forward refuses them (ValueError, ``FSDPState._validate_no_duplicate_params``); before, they
    were silently no longer tied. Either way the counts here, which take a tied parameter once, do not hold for them.
    """
    owner: dict[str, int] = {}
    for number, unit in enumerate(model.units):
        for module in unit.modules:
            owner.setdefault(module, number)
    found = []
    for parameter in model.parameters:
        if not parameter.aliases or parameter.ignored:
            continue
        first = _owner_of(parameter.name, owner)
        found += [(parameter.name, alias) for alias in parameter.aliases if _owner_of(alias, owner) != first]
    return tuple(found)


def _owner_of(name: str, owner: dict[str, int]) -> int:
    """The first unit, bottom-up, that holds a parameter of this name; -1 for the root."""
    numbers = []
    module = name.rpartition(".")[0]
    while module:
        if module in owner:
            numbers.append(owner[module])
        module = module.rpartition(".")[0]
    return min(numbers, default=-1)


def groups(request: Request, survey: Survey | None = None) -> tuple[Group, ...]:
    """The groups in the order of the fully_shard calls, the root last; () for DDP or when only the size is known."""
    if request.strategy not in SHARDED or not request.model.parameters:
        return ()
    survey = take(request) if survey is None else survey
    of, tp_size = survey.of, request.layout.tp_size
    pieces = [cut(kind, 1, tp_size, 0, survey.shard_size) for kind in survey.kinds]
    sizes: dict[tuple[int, ...], tuple[int | None, ...]] = {}
    found = []
    for modules, _, parameters in members(request.model):
        signature = tuple([of[at] for at in parameters])
        values = sizes.get(signature)
        if values is None:
            values = sizes[signature] = _sizes(request, survey, [pieces[kind] for kind in signature])
        name = "+".join(modules) or ROOT
        found.append(Group(name, modules, survey.shard_size, survey.replicate_size, *values))  # type: ignore[arg-type]
    return tuple(found)


def _sizes(request: Request, survey: Survey, pieces: list[Piece]) -> tuple[int | None, ...]:
    """The fields of Group from ``parameters`` on."""
    ways = survey.shard_size
    numel = stored = 0
    gathered: int | None = 0  # bytes of this rank's part
    reduced: int | None = 0
    for piece in pieces:
        kind, padded = piece.kind, piece.stored
        numel += piece.numel
        stored += padded
        gathered = None if gathered is None or not kind.compute_itemsize else gathered + padded * kind.compute_itemsize
        if kind.trainable:
            size = kind.reduce_itemsize
            reduced = None if reduced is None or not size else reduced + padded * size
    unsharded = None if gathered is None else gathered * ways
    # One rank alone copies its shard over without a collective, from 2.9 on.
    alone = ways == 1 and release_minor(request.release) >= (2, 9)
    return (
        numel,
        stored,
        unsharded,
        0 if alone else gathered,
        0 if alone else unsharded,
        None if reduced is None else reduced * ways,
        reduced,
        reduced if survey.replicate_size > 1 else 0,
    )


def mixed_dtypes(request: Request, survey: Survey | None = None) -> tuple[str, ...]:
    """Names of the groups whose dtypes the first forward refuses ("FSDP expects uniform original parameter dtype").

    The rule covers the trainable parameters of a group; before 2.8 it covered the frozen ones too
    (``FSDPParamGroup._init_mp_dtypes``).
    """
    if request.strategy not in SHARDED or not request.model.parameters:
        return ()
    survey = take(request) if survey is None else survey
    frozen_too = release_minor(request.release) < (2, 8)
    found = []
    for modules, _, parameters in members(request.model):
        kinds = [survey.kinds[number] for number in {survey.of[at] for at in parameters}]
        if len({kind.dtype for kind in kinds if kind.trainable or frozen_too}) > 1:
            found.append("+".join(modules) or ROOT)
    return tuple(found)
