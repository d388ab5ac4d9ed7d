"""The part ``accounting`` of a plan: exact numbers, each with its formula."""

from __future__ import annotations

from typing import Any

from shardguide.accounting import (
    FORMULAS,
    Group,
    RankRun,
    flat_per_rank,
    groups,
    lower_bounds,
    per_rank,
    refusals,
    support,
    take,
    transients,
)
from shardguide.guidance.serialise import plain

from ..numbers import Layout, request
from ..situation import Situation
from .precision import Policy


def build(
    s: Situation, layout: Layout, policy: Policy, offload: bool, also: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[RankRun, ...], tuple[Group, ...]]:
    """The JSON part, the runs of equal ranks and the communication groups."""
    asked = request(s, layout, (policy.param, policy.reduce) if layout.strategy != "none" else ("", ""), offload)
    part: dict[str, Any] = {
        "parameters": s.model.size,
        "implementation": s.model.implementation,
        "layout": {"strategy": layout.strategy, "replicate": layout.replicate, "shard": layout.shard, "tp": layout.tp},
        "param_dtype": s.param_dtype or None,
        "optimizer": s.optimizer or None,
    }
    if not s.model.parameters:
        part["per_rank"] = []
        part["groups"] = []
        part["lower_bounds"] = plain(lower_bounds(asked))
        part["formulas"] = {
            "lower_bounds": "some rank holds at least ceil(stated size / ranks of a shard group) elements"
        }
        return part, (), ()
    kinds = take(asked)
    fsdp1 = layout.strategy != "none" and not s.has_fsdp2()
    runs = flat_per_rank(asked) if fsdp1 else per_rank(asked, kinds)
    made = () if fsdp1 else groups(asked, kinds)
    part["per_rank"] = plain(runs)
    part["groups"] = plain(made)
    if "fsdp1" in also and layout.strategy != "none" and not fsdp1:
        part["per_rank_fsdp1"] = plain(flat_per_rank(asked._replace(placements=None)))
    if layout.placements:
        part["per_rank_shard0"] = plain(
            per_rank(request(s, layout._replace(placements=()), (policy.param, policy.reduce), offload))
        )
    part["transients"] = [] if fsdp1 else plain(transients(asked, kinds))  # they are those of fully_shard
    if layout.strategy != "none" and not fsdp1:
        part["refusals"] = plain(refusals(asked, kinds))
    if s.optimizer:
        found = support(asked, kinds)
        part["optimizer_support"] = plain(found)
    part["formulas"] = FORMULAS
    return part, runs, made
