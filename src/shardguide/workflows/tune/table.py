"""Before and after: every field of precision and offload, and what it costs in bytes held and bytes moved."""

from __future__ import annotations

from collections.abc import Callable

from shardguide.guidance.hints import NamedTuple

from ..situation import Situation
from .costs import Costs, Side, costs
from .now import SHARDED, UNKNOWN, Now

NO_PLACE = "does not apply"
APIS = {"fsdp2": "FSDP2 (fully_shard)", "fsdp1": "FSDP1", "ddp": "DDP"}


Word = Callable[[Side], "str | None"]


class Row(NamedTuple):
    """One line of the table."""

    name: str
    before: str | int | None  # None: not known (a setting), not worked out (bytes)
    after: str | int | None
    unit: str  # "bytes" or ""
    formula: str
    assumed: str  # what the number before rests on that was not read, or why there is none; "": exact as read


_LINES = (
    ("held on the device", "device", "parameters, gradients, optimizer state and buffers that lie on the GPU"),
    ("held on the host, per rank", "host", "the same, that lie in host memory"),
    ("largest all-gather", "largest_gather", "output of the largest group's all-gather"),
    ("largest reduce-scatter", "largest_scatter", "input of the largest group's reduce-scatter"),
    ("all-gathered a step", "gathered", "sum over groups of the output, twice where parameters are freed after forward"),
    ("reduce-scattered a step", "scattered", "sum over groups of the input"),
    ("all-reduced a step", "reduced", "hybrid: gradient shards over the replicas; DDP: every gradient"),
    ("copied host to device a step", "to_device", "shards: FSDP2 before every all-gather, FSDP1 before forward and backward"),
    ("copied device to host a step", "to_host", "gradient shards, once"),
)  # fmt: skip


def rows(s: Situation, before: Side, after: Side) -> tuple[Row, ...]:
    """The whole table; where nothing is known of ``before`` its column is None."""
    out = []
    for name, word in _SETTINGS:
        values = [word(side) for side in (before, after)]
        if name == "autocast" and values[0] in (None, "no", NO_PLACE):
            continue
        if any(value not in (NO_PLACE, None) for value in values):
            out.append(Row(name, values[0], values[1], "", "", ""))
    old, new = costs(s, before) if before.now.known else Costs(), costs(s, after)
    assumed = "; ".join(old.assumed)
    for name, field, formula in _LINES:
        was: int | None = getattr(old, field)
        becomes: int | None = getattr(new, field)
        if name == "all-reduced a step" and not was and not becomes:
            continue
        rests = assumed if _rests(field, was, before.now) else ""
        out.append(Row(name, was, becomes, "bytes", formula, rests))
    return tuple(out)


def _rests(field: str, value: int | None, now: Now) -> bool:
    """Whether a number rests on what was assumed: bytes held do so only under FSDP1, whose padding follows the wrapping."""
    if value == 0:
        return False
    if value is None or now.api == "fsdp1":
        return True
    return field in ("largest_gather", "largest_scatter", "gathered", "to_device")


def _api(side: Side) -> str | None:
    if side.now.api == "ddp" and side.layout is not None and side.layout.replicate * side.layout.shard == 1:
        return "one process, no wrapper"
    return APIS.get(side.now.api)


def _sharding(side: Side) -> str | None:
    layout, strategy = side.layout, side.now.strategy
    if strategy in (UNKNOWN, SHARDED):
        return None
    if layout is None or layout.replicate == 1 or strategy == "none":
        return strategy
    return f"{strategy} ({layout.replicate} × {layout.shard})"


def _wrapping(side: Side) -> str | None:
    """The units that are gathered on their own; what is left goes to the root."""
    now = side.now
    if now.strategy == "none" or now.api == "ddp":
        return NO_PLACE
    if now.wrapping is None or now.api not in APIS:
        return None
    words = {"block": ", ".join(now.classes) or "each layer", "embedding": "embedding", "head": "norm and head"}
    return ", ".join(words[role] for role in ("block", "embedding", "head") if role in now.wrapping) or "all at once"


def _setting(field: str, apis: tuple[str, ...]) -> Word:
    def word(side: Side) -> str | None:
        now = side.now
        if not now.known:
            return None
        if now.api in APIS and now.api not in apis:
            return NO_PLACE
        value = str(getattr(now, field))
        return None if value == UNKNOWN else value or "None"

    return word


def _param(side: Side) -> str | None:
    value = side.now.param
    if value == UNKNOWN:
        return None
    return f"{value or 'None'} (autocast)" if side.now.api == "ddp" and value else value or "None"


def _autocast(side: Side) -> str | None:
    """Autocast beside FSDP's own policy; under DDP it is the compute dtype above."""
    value = side.now.autocast
    return NO_PLACE if side.now.api == "ddp" else None if value == UNKNOWN else value or "no"


def _clipping(side: Side) -> str | None:
    value = side.now.clipping
    return None if value == UNKNOWN else value or "none"


def _offload(side: Side) -> str | None:
    now = side.now
    if now.api == "ddp":
        return NO_PLACE
    if now.offload in (UNKNOWN, ""):
        return None if now.offload else "no"
    return {"fsdp2": "CPUOffloadPolicy", "fsdp1": "CPUOffload(offload_params=True)"}.get(now.api, "yes")


def _pinned(side: Side) -> str | None:
    now = side.now
    if now.api in ("ddp", "fsdp1") or now.offload == "":  # FSDP1 always pins and has no field for it
        return NO_PLACE
    return {"pinned": "True", "pageable": "False"}.get(now.offload)


def _backend(side: Side) -> str | None:
    return None if side.now.backend == UNKNOWN else side.now.backend or "not given"


_SETTINGS: tuple[tuple[str, Word], ...] = (
    ("API", _api),
    ("sharding", _sharding),
    ("wrapping", _wrapping),
    ("param_dtype", _param),
    ("reduce_dtype", _setting("reduce", ("fsdp2", "fsdp1"))),
    ("output_dtype", _setting("output", ("fsdp2",))),
    ("buffer_dtype", _setting("buffer", ("fsdp1",))),
    ("cast_forward_inputs", _setting("cast_inputs", ("fsdp2", "fsdp1"))),
    ("autocast", _autocast),
    ("gradient scaler", _setting("scaler", ("fsdp2", "fsdp1", "ddp"))),
    ("gradient clipping", _clipping),
    ("CPU offload", _offload),
    ("pin_memory", _pinned),
    ("backend", _backend),
)


def benefit(table: tuple[Row, ...], before: Now, after: Now) -> list[str]:
    """What changes, in exact bytes; no statement about time. Empty while nothing is known of what runs now."""
    from ..numbers import gib

    if not before.known:
        return []
    out = []
    if before.api in APIS and before.api != after.api:
        out.append(
            f"API: {APIS[before.api]} to {APIS[after.api]}. This changes the training code (wrapping, optimizer, checkpoints), "
            "not settings alone."
        )
    for row in table:
        old, new = row.before, row.after
        if old is None or new is None or old == new or row.name == "API" or NO_PLACE in (old, new):
            continue
        if row.name == "gradient clipping" and old == "none":  # whether to clip is not for precision to decide
            continue
        if isinstance(old, int) and isinstance(new, int):
            if gib(old) == gib(new):  # alignment and padding: too small to show
                continue
            more = "more" if new > old else "less"
            mark = "; not all that it rests on was read" if row.assumed else ""
            out.append(f"{row.name}: {gib(abs(new - old))} {more} ({gib(old)} to {gib(new)}{mark})")
        else:
            out.append(f"{row.name}: {old} to {new}")
    if out:
        return out
    unread = any(row.before is None and row.after is not None for row in table)
    return [
        "Nothing changes in what was read."
        if unread
        else "Nothing changes: the current settings are the recommended ones."
    ]
