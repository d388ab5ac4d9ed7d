"""What a front end hands to the workflows about a model and a cluster."""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple

# Forms that a plan shows only when asked for.
ON_REQUEST = ("fsdp1", "accelerate", "torchtitan")

# Current settings that tune takes in words.
NOW_KEYS = ("api", "strategy", "param", "reduce", "output", "offload", "scaler")


class PlanRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    given: dict[str, Any]  # by field name, as text or value
    remembered: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    files: tuple[str, ...] = ()  # --from
    measured: tuple[str, ...] = ()
    current: str = ""
    site_packages: str | None = None
    also: tuple[str, ...] = ()  # of ON_REQUEST
