"""Workflow W1, configuration: from a model and a cluster to a plan, every choice with its reason and its source."""

from __future__ import annotations

from shardguide.accounting import Group
from shardguide.guidance.hints import Any
from shardguide.guidance.record import Check, Decision, Guidance, Next

from .. import prepare
from ..numbers import Layout, States, heaviest, known_bytes, states
from ..request import PlanRequest
from ..situation import Situation
from . import code, communication, fsdp1, ledger, memory, mesh, precision, running, sharding
from .measuring import facts, of_another_run, peak_of, unused

APPROVE = "Is this the configuration to use in production? Nothing is used before you confirm it."

__all__ = ["PlanRequest", "plan"]


def _optimizer_check(part: dict[str, Any]) -> list[Check]:
    found = part.get("optimizer_support")
    if not found:
        return []
    if found["status"] == "refused":
        return [Check("optimizer", "failed", f"{found['reason']} {found['error']}")]
    if found["status"] == "not worked out":
        return [Check("optimizer", "unknown", f"Its state is not worked out: {found['reason']}")]
    return [Check("optimizer", "passed", found["reason"])]


def _refusal_check(s: Situation, part: dict[str, Any]) -> list[Check]:
    """The errors that fully_shard is known to raise for this model as planned."""
    if "refusals" not in part:
        return []
    found = list(part["refusals"])
    if s.scalars:
        error = f"ValueError: fully_shard doesn't support scalar parameters. Change {s.scalars[0]} to a 1D tensor with numel equal to 1."
        count = len(s.scalars)
        why = (
            "1 parameter has no dimension; it counts as one element here."
            if count == 1
            else f"{count} parameters have no dimension; they count as one element each here."
        )
        found.append(
            {"error": error, "when": "fully_shard", "why": why, "source": "torch.distributed.fsdp.fully_shard"}
        )
    if not found:
        return [
            Check(
                "fully_shard",
                "passed",
                "No error is known that fully_shard would raise for these shapes, dtypes and ties.",
            )
        ]
    words = "; ".join(f"{one['why']} At {one['when']}: {one['error']}" for one in found[:3])
    return [Check("fully_shard", "failed", f"{words}{f' (and {len(found) - 3} more)' if len(found) > 3 else ''}")]


def _hardware_check(s: Situation, layout: Layout, policy: precision.Policy) -> Check:
    """Nothing in the plan contradicts the stated hardware: every rank has its place, dtype and backend exist on the device."""
    problems = []
    if layout.replicate * layout.shard * layout.tp != s.world:
        problems.append(f"the mesh has {layout.replicate * layout.shard * layout.tp} places for {s.world} ranks")
    if s.nodes and layout.tp > 1 and s.per_node % layout.tp:
        problems.append(f"tensor-parallel groups of {layout.tp} cross nodes of {s.per_node} GPUs")
    if policy.param == "bfloat16" and s.bf16 is False and s.device != "cpu":
        problems.append(f"{s.gpu} has no native bfloat16")
    if s.device == "xpu" and not s.at_least(2, 6):
        problems.append("this release has no XCCL backend for XPU")
    if problems:
        return Check("consistency", "failed", "; ".join(problems) + ".")
    if not (s.world and s.nodes and (s.memory or s.device == "cpu")):
        return Check("consistency", "unknown", "Not all of the hardware is known yet.")
    return Check(
        "consistency",
        "passed",
        f"The mesh places all {s.world} ranks; dtype, backend and release agree with {s.gpu or 'what was said'}.",
    )


def plan(request: PlanRequest) -> Guidance:
    """The plan, or as much of it as the answers allow, with the questions that remain.

    Raises UnusableInput for input that cannot be read and for options that contradict each other.
    """
    prepared = prepare.prepare(request)
    s = prepared.situation
    if s is None:
        return prepare.finish("plan", prepared, APPROVE)
    if not s.world:
        part = {"parameters": s.model.size, "implementation": s.model.implementation, "per_rank": [], "groups": []}
        return prepare.finish("plan", prepared, APPROVE, extra={"accounting": part, "hardware": prepare.shown(s)})
    return _decide(s, prepared, request.also)


def _how(s: Situation, layout: Layout, groups: tuple[Group, ...], policy: precision.Policy) -> list[Decision]:
    """Mesh, resharding, wrapping and precision, in the terms of the API that the release has."""
    dtypes = precision.decide(s, layout)
    if layout.strategy != "none" and not s.has_fsdp2():
        return [fsdp1.mesh(s, layout), fsdp1.reshard(layout), fsdp1.wrapping(s), fsdp1.precision(s, policy, dtypes)]
    return [
        mesh.decide(s, layout),
        communication.reshard(s, layout, groups),
        communication.wrapping(s, layout, groups),
        dtypes,
    ]


def _decide(s: Situation, prepared: prepare.Prepared, also: tuple[str, ...]) -> Guidance:
    policy = precision.policy(s)
    peak = peak_of(s)
    notes: list[str] = []
    if peak is not None:
        held = sharding.choose(s)[0].states.total
        other = of_another_run(s, peak, 0 if s.offload == "yes" else held)
        if other:
            notes.append(f"The measurement is not used, since it is of another run: {other}.")
            peak = None
    if s.current is not None and s.current.strategy:
        notes.append(
            f"{s.current.where} runs {s.current.strategy} now; shardguide tune --current compares its precision and offload."
        )
    notes += unused(s)
    decision, layout = sharding.decide(s, peak)
    offload = memory.offloads(s, layout, states(s, layout))
    part, runs, groups = ledger.build(s, layout, policy, offload, also)
    need = States(*known_bytes(heaviest(runs))) if runs else states(s, layout)
    checkpointing = memory.activation_checkpointing(s, layout, peak)
    decisions = [
        decision,
        *_how(s, layout, groups, policy),
        memory.cpu_offload(s, layout, need, peak),
        checkpointing,
        running.backend(s, offload),
        running.launch(s, layout, code.script(s, layout)),
    ]
    moments = memory.moments(s, layout, policy, heaviest(runs), groups, offload) if runs else ()
    checks = [
        memory.check(s, layout, need, offload, moments, memory.on_one_node(s, runs)),
        _hardware_check(s, layout, policy),
        *_optimizer_check(part),
        *_refusal_check(s, part),
    ]
    rendered = code.render(s, layout, policy, offload, checkpointing.choice.startswith("checkpoint_wrapper"), also)
    next_: tuple[Next, ...] = ()
    if any(one.open for one in decisions):
        why = "run the snippet 'measure' and plan again with its file, to close what is open"
        next_ = (Next("plan", {"measured": "FILE"}, why),)
    if s.weights == "random" and s.model.architecture:
        next_ = (
            *next_,
            Next("plan", {"weights": "pretrained"}, "code that loads a checkpoint"),
        )
    return prepare.finish(
        "plan",
        prepared._replace(notes=(*prepared.notes, *notes)),
        APPROVE,
        decisions=decisions,
        checks=checks,
        snippets=rendered.snippets,
        measured=facts(s.measured),
        extra={"accounting": part, "hardware": prepare.shown(s)},
        not_done=tuple(rendered.not_done),
        next_=next_,
    )
