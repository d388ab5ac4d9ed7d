"""Before and after: every field of precision and offload, and what it costs in bytes held and bytes moved.

Bytes are those of the rank that holds most. "Moved" counts the tensors that enter and leave collectives and copies in one
step (one forward and backward without accumulation), by the accounting's exact sizes; it is no statement about time.
"""

from __future__ import annotations

from shardguide.accounting import Group, RankRun, flat_per_rank, groups, per_rank
from shardguide.guidance.named import NamedTuple

from ..numbers import Layout, heaviest, request
from ..situation import Situation


class Setup(NamedTuple):
    """One set of choices; "" is None."""

    layout: Layout
    param: str
    reduce: str
    output: str
    offload: str  # "", "pinned", "pageable"
    scaler: str
    backend: str
    api: str = "fsdp2"  # "fsdp1": flat parameters
    sharding_read: bool = True  # False: the sharding is the recommended one, since the current one was not read


class Costs(NamedTuple):
    """Exact bytes of a Setup on the rank that holds most; None where a dtype or the optimizer is not known."""

    device: int | None
    host: int | None
    all_gather_largest: int | None
    reduce_scatter_largest: int | None
    gathered: int | None  # a step, all groups
    scattered: int | None
    to_device: int | None  # host to device copies of shards a step
    to_host: int | None


class Row(NamedTuple):
    """One line of the table."""

    name: str
    before: str | int | None
    after: str | int | None
    unit: str  # "bytes" or ""
    formula: str


def gathers(group: Group, layout: Layout, last: str) -> int:
    """All-gathers of a group in one step: once, or twice where it is resharded after forward.

    The root's group (no modules) and the last one (norm and head) are not resharded in the plan's code.
    """
    kept = layout.strategy == "grad_op" or not group.modules or group.name == last
    return 1 if kept else 2


def costs(s: Situation, setup: Setup) -> Costs:
    """The accounting of one setup."""
    if not s.model.parameters:
        return Costs(*[None] * 8)
    asked = request(s, setup.layout, (setup.param, setup.reduce), bool(setup.offload))
    if setup.api == "fsdp1" and setup.layout.strategy != "none":
        return _flat_costs(heaviest(flat_per_rank(asked._replace(offload=False, placements=None))), bool(setup.offload))
    run: RankRun = heaviest(per_rank(asked))
    if setup.layout.strategy == "none":
        return Costs(run.device_bytes, run.host_bytes, None, None, None, None, None, None)
    made = groups(asked)
    head = next((unit for unit in s.model.units if unit.role == "head"), None)
    last = next((group.name for group in made if head and group.modules == head.modules), "")
    whole = [group.all_gather_bytes for group in made]
    scatter = [group.reduce_scatter_bytes for group in made]
    gathered = scattered = to_device = to_host = None
    if None not in whole:
        gathered = sum((group.all_gather_bytes or 0) * gathers(group, setup.layout, last) for group in made)
    if None not in scatter:
        scattered = sum(one or 0 for one in scatter)
    if setup.offload and run.parameter_bytes is not None:
        per_element = run.parameter_bytes // run.stored_parameters if run.stored_parameters else 0
        to_device = sum(group.stored_parameters * per_element * gathers(group, setup.layout, last) for group in made)
        to_host = run.gradient_bytes
    elif not setup.offload:
        to_device = to_host = 0
    return Costs(
        run.device_bytes,
        run.host_bytes,
        max((one or 0 for one in whole), default=None) if None not in whole else None,
        max((one or 0 for one in scatter), default=None) if None not in scatter else None,
        gathered,
        scattered,
        to_device,
        to_host,
    )


def _flat_costs(run: RankRun, offload: bool) -> Costs:
    """FSDP1's flat parameters: what is held is exact; the collectives' tensors are not worked out.

    With CPUOffload(offload_params=True) parameters, gradients and optimizer state lie in host memory (FSDP1's docstring).
    """
    parts = (run.parameter_bytes, run.gradient_bytes, run.optimizer_bytes)
    if any(part is None for part in parts):
        return Costs(*[None] * 8)
    held = sum(part or 0 for part in parts)
    moved = (None, None) if offload else (0, 0)
    return Costs(run.buffer_bytes + (0 if offload else held), held if offload else 0, None, None, None, None, *moved)


_LINES = (
    ("held on the device", "device", "parameters, gradients, optimizer state and buffers that lie on the GPU"),
    ("held on the host, per rank", "host", "the same, that lie in host memory"),
    ("largest all-gather", "all_gather_largest", "output of the largest group's all-gather"),
    ("largest reduce-scatter", "reduce_scatter_largest", "input of the largest group's reduce-scatter"),
    (
        "all-gathered a step",
        "gathered",
        "sum over groups of the output, twice where parameters are resharded after forward",
    ),
    ("reduce-scattered a step", "scattered", "sum over groups of the input"),
    ("copied host to device a step", "to_device", "shards, before every all-gather"),
    ("copied device to host a step", "to_host", "gradient shards, once"),
)


def rows(s: Situation, before: Setup | None, after: Setup) -> tuple[Row, ...]:
    """The whole table; without a ``before`` its column is None."""
    out = []
    for name, field in (("sharding", "layout"), ("param_dtype", "param"), ("reduce_dtype", "reduce"), ("output_dtype", "output"),
                        ("gradient scaler", "scaler"), ("backend", "backend")):  # fmt: skip
        values = [_word(setup, field) for setup in (before, after)]
        out.append(Row(name, values[0], values[1], "", ""))
    offload = [None if setup is None else "CPUOffloadPolicy" if setup.offload else "no" for setup in (before, after)]
    pinned = [
        None if setup is None else {"pinned": "True", "pageable": "False", "": "does not apply"}[setup.offload]
        for setup in (before, after)
    ]
    out.append(Row("CPU offload", offload[0], offload[1], "", ""))
    out.append(Row("pin_memory", pinned[0], pinned[1], "", ""))
    old = costs(s, before) if before is not None else None
    new = costs(s, after)
    for name, field, formula in _LINES:
        out.append(Row(name, getattr(old, field) if old else None, getattr(new, field), "bytes", formula))
    return tuple(out)


def _word(setup: Setup | None, field: str) -> str | None:
    if setup is None:
        return None
    if field == "layout":
        layout = setup.layout
        if not setup.sharding_read:
            return None
        return f"{layout.strategy} ({layout.replicate} × {layout.shard})" if layout.replicate > 1 else layout.strategy
    if field == "backend" and not setup.backend:
        return None
    return str(getattr(setup, field)) or "None"
