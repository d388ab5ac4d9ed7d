"""The part ``accounting`` of a plan: exact numbers, each with its formula."""

from __future__ import annotations

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
from shardguide.guidance.hints import Any
from shardguide.guidance.record import Fact
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
    # Without known layers the wrapping is the user's own, and a list with one root group would be of what is not planned.
    wrapped = any(unit.role == "block" for unit in s.model.units) or layout.strategy == "none"
    made = groups(asked, kinds) if wrapped and not fsdp1 else ()
    part["per_rank"] = plain(runs)
    part["groups"] = plain(made)
    if "fsdp1" in also and layout.strategy != "none" and not fsdp1:
        part["per_rank_fsdp1"] = plain(flat_per_rank(asked._replace(placements=None)))
    if layout.strategy == "none" and s.dp > 1:
        plain_ = Layout("full", 1, s.dp, s.tp)
        part["per_rank_shard0"] = plain(per_rank(request(s, plain_, (policy.param, policy.reduce))))
    if layout.placements:
        part["per_rank_shard0"] = plain(
            per_rank(request(s, layout._replace(placements=()), (policy.param, policy.reduce), offload))
        )
    part["transients"] = plain(_transients(s, layout, transients(asked, kinds), made)) if wrapped and not fsdp1 else []
    if layout.strategy != "none" and not fsdp1:
        part["refusals"] = plain(refusals(asked, kinds))
    if s.optimizer:
        found = support(asked, kinds)
        part["optimizer_support"] = plain(found)
    part["formulas"] = FORMULAS
    return part, runs, made


def _transients(s: Situation, layout: Layout, facts: tuple[Fact, ...], made: tuple[Group, ...]) -> list[Fact]:
    """The accounting's facts, made those of the plan's own code: the head is kept after forward, DDP's gradients are views."""
    kept = [fact for fact in facts if fact.id != "transient.ddp_buckets"]
    head = next((unit for unit in s.model.units if unit.role == "head"), None)
    for group in made:
        if (
            head is not None
            and group.modules == head.modules
            and layout.strategy in ("full", "hybrid")
            and group.unsharded_bytes
        ):
            formula = "the head's unsharded parameters, from forward to backward: its reshard_after_forward is False"
            kept.append(Fact("transient.head_kept", group.unsharded_bytes, "bytes", formula))
    return kept
