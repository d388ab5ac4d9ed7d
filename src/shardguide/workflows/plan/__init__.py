"""Workflow W1, configuration: from a model and a cluster to a plan, every choice with its reason and its source."""

from __future__ import annotations

from typing import Any, NamedTuple

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Model
from shardguide.guidance.record import Answer, Approval, Check, Decision, Fact, Guidance, Next, Question
from shardguide.guidance.serialise import digest
from shardguide.knowledge.hardware.links import check_counts

from .. import fields
from ..evidence import Handed, read_files
from ..gather import Gathered, ask, gather
from ..release import Resolved, resolve
from ..sources import cite
from . import code, communication, hardware, ledger, memory, mesh, precision, running, sharding
from .measuring import facts, peak_of, reconsider
from .model import load
from .numbers import heaviest, known_bytes, states
from .situation import Memory, Situation

APPROVE = "Is this the configuration to use in production? Nothing is used before you confirm it."


class PlanRequest(NamedTuple):
    """Everything a front end hands over; absent is None or empty."""

    given: dict[str, Any]  # by field name, as text or value
    remembered: dict[str, Any] = {}
    files: tuple[str, ...] = ()  # --from
    measured: tuple[str, ...] = ()
    current: str = ""
    site_packages: str | None = None
    also: tuple[str, ...] = ()  # of code.ON_REQUEST


def _model(gathered: Gathered) -> Model | None:
    text = gathered.value("model")
    return load(text, gathered.value("implementation", "")) if text else None


def _counts(gathered: Gathered) -> None:
    """Refuse counts that contradict each other when the user said both; a file against a flag is asked about."""
    gpus, nodes, tp = (gathered.value(name) for name in ("gpus", "nodes", "tp"))
    if gpus and nodes:
        check_counts(gpus, nodes)
    if gpus and tp and gpus % tp:
        raise UnusableInput(f"--tp {tp} does not divide --gpus {gpus}; tensor parallelism needs equal groups.")
    if gpus and nodes and tp and (gpus // nodes) % tp:
        raise UnusableInput(
            f"--tp {tp} does not divide the {gpus // nodes} GPUs of a node; tensor-parallel groups must stay within one."
        )
    size = gathered.value("shard_size")
    if size and gpus and (gpus // (tp or 1)) % size:
        raise UnusableInput(f"--shard-size {size} does not divide the {gpus // (tp or 1)} data-parallel ranks.")


def _situation(gathered: Gathered, resolved: Resolved, model: Model, found: hardware.Hardware, handed: Handed) -> Situation:
    gpus = gathered.value("gpus", 0)
    host = gathered.value("host_memory")
    size = hardware.parse_memory(host) if host else None
    return Situation(
        release=resolved.release,
        minor=resolved.minor,
        model=model,
        world=gpus,
        nodes=gathered.value("nodes", 1 if gpus == 1 else 0),
        tp=gathered.value("tp", 1),
        device=found.device,
        gpu=found.name,
        memory=found.memory,
        host_memory=hardware.stated(size),
        bf16=found.bf16,
        compute_capability=found.capability,
        intra=gathered.value("intra", ""),
        inter=gathered.value("inter", ""),
        optimizer=gathered.value("optimizer", ""),
        param_dtype=gathered.value("param_dtype", ""),
        strategy=gathered.value("strategy", "auto"),
        shard_size=gathered.value("shard_size", 0),
        offload=gathered.value("offload", "auto"),
        measured=handed.measured,
        current=handed.current,
    )


def _questions(s: Situation, gathered: Gathered, resolved: Resolved, found: hardware.Hardware) -> list[Question]:
    """What is neither known nor given, in the order in which it is asked."""
    open_: list[Question] = [*resolved.questions, *gathered.conflicts]
    if not s.world:
        open_.append(ask(fields.GPUS))
    if not s.nodes and s.world != 1:
        open_.append(ask(fields.NODES))
    if found.questions:
        open_.extend(found.questions)
    elif s.memory is None and s.device != "cpu":
        open_.append(ask(fields.GPU))
    if s.per_node > 1 and not s.intra and s.device != "cpu":
        open_.append(ask(fields.INTRA))
    if s.nodes > 1 and not s.inter:
        open_.append(ask(fields.INTER))
    if not s.optimizer:
        open_.append(ask(fields.OPTIMIZER))
    if not s.param_dtype:
        question = ask(fields.PARAM_DTYPE)
        if s.model.config_dtype:
            stored = f" The config says its checkpoint is in {s.model.config_dtype}; that is how it is stored, not how you train."
            question = question._replace(why=question.why + stored)
        open_.append(question)
    if s.strategy == "hybrid" and s.nodes == 1 and not s.shard_size:
        open_.append(ask(fields.SHARD_SIZE))
    first: dict[str, Question] = {}
    for question in open_:
        first.setdefault(question.id, question)
    return list(first.values())


def _optimizer_check(part: dict[str, Any]) -> list[Check]:
    found = part.get("optimizer_support")
    if not found:
        return []
    if found["status"] == "refused":
        return [Check("optimizer", "failed", f"{found['reason']} {found['error']}")]
    if found["status"] == "not worked out":
        return [Check("optimizer", "unknown", f"Its state is not worked out: {found['reason']}")]
    return [Check("optimizer", "passed", found["reason"])]


def _hardware_check(s: Situation, decisions: list[Decision]) -> Check:
    """Nothing in the plan contradicts the stated hardware: the mesh covers every rank once, the dtype is native."""
    by_id = {decision.id: decision.choice for decision in decisions}
    problems = []
    if s.bf16 is False and "bfloat16" in by_id["mixed_precision"] and s.device != "cpu":
        problems.append("bfloat16 is not native on this device")
    if s.device == "xpu" and "nccl" in by_id["backend"]:
        problems.append("NCCL does not serve XPU")
    if s.has_fsdp2() is False and "fully_shard" in by_id["wrapping"]:
        problems.append("this release has no fully_shard")
    if problems:
        return Check("consistency", "failed", "; ".join(problems) + ".")
    known = s.world and s.nodes and (s.memory or s.device == "cpu")
    words = f"{s.world} ranks = mesh of the plan; dtype, backend and release agree with {s.gpu or 'the stated hardware'}."
    return Check("consistency", "passed" if known else "unknown", words if known else "Not all of the hardware is known yet.")


def plan(request: PlanRequest) -> Guidance:
    """The plan, or as much of it as the answers allow, with the questions that remain.

    Raises UnusableInput for input that cannot be read and for options that contradict each other.
    """
    handed = read_files(request.files, request.measured, request.current)
    gathered = gather(fields.PLAN, request.given, handed.facts, request.remembered)
    _counts(gathered)
    resolved = resolve(request.given.get("torch"), request.site_packages, request.remembered.get("torch"))
    found = hardware.resolve(
        gathered.value("gpu", ""),
        gathered.value("gpu_memory", ""),
        gathered.value("device", ""),
        all(gathered.answers[name].source == "user" for name in ("gpu", "gpu_memory") if name in gathered.answers),
    )
    answers = dict(gathered.answers)
    if resolved.release.version:
        answers["torch"] = Answer(resolved.release.version, resolved.release.known_from)
    model = _model(gathered)
    inputs = [sorted(answers.items()), handed.digest, model and digest(model), sorted(request.also)]
    if model is None:
        waiting = [*resolved.questions, *gathered.conflicts, ask(fields.MODEL)]
        return _finish(resolved, answers, inputs, waiting, not_done=("everything: no model is known yet",))
    s = _situation(gathered, resolved, model, found, handed)
    questions = [*handed.questions, *_questions(s, gathered, resolved, found)]
    notes = [*model.notes, *found.notes, *handed.notes]
    if not s.world:
        extra = {"accounting": {"parameters": model.size, "implementation": model.implementation, "per_rank": [], "groups": []}}
        return _finish(resolved, answers, inputs, questions, extra=extra, notes=notes, not_done=("decisions: the number of GPUs is not known",))
    return _decide(s, resolved, answers, inputs, questions, notes, request.also)


def _decide(
    s: Situation,
    resolved: Resolved,
    answers: dict[str, Answer],
    inputs: list[Any],
    questions: list[Question],
    notes: list[str],
    also: tuple[str, ...],
) -> Guidance:
    decision, layout = sharding.decide(s)
    layout = mesh.place(s, layout)
    policy = precision.policy(s)
    peak = peak_of(s)
    if peak is not None:
        whole = sum(group.unsharded_bytes or 0 for group in ledger.build(s, layout, policy, False)[2])
        decision, layout = reconsider(s, decision, layout, peak, whole)
    offload = memory.offloads(s, layout, states(s, layout))
    part, runs, groups = ledger.build(s, layout, policy, offload)
    need = states(s, layout) if not runs else sharding.States(*known_bytes(heaviest(runs)))
    checkpointing = memory.activation_checkpointing(s, layout, peak)
    decisions = [
        decision,
        mesh.decide(s, layout),
        communication.reshard(s, layout, groups),
        communication.wrapping(s, layout, groups),
        precision.decide(s, layout),
        memory.cpu_offload(s, layout, need, peak),
        checkpointing,
        running.backend(s, offload),
        running.launch(s, layout),
    ]
    checks = [memory.check(s, layout, need, offload), _hardware_check(s, decisions), *_optimizer_check(part)]
    rendered = code.render(s, layout, policy, offload, checkpointing.choice.startswith("checkpoint_wrapper"), also)
    return _finish(
        resolved,
        answers,
        inputs,
        questions,
        decisions=decisions,
        checks=checks,
        snippets=rendered.snippets,
        extra={"accounting": part, "hardware": _shown(s)},
        measured=facts(s.measured),
        notes=notes,
        not_done=tuple(rendered.not_done),
    )


def _shown(s: Situation) -> dict[str, Any]:
    """The hardware and the model as understood, to be confirmed (W1.1)."""
    return {
        "gpus": s.world,
        "nodes": s.nodes or None,
        "gpus_per_node": s.per_node if s.nodes else None,
        "gpu": s.gpu or None,
        "device": s.device or None,
        "memory": s.memory.text if s.memory else None,
        "memory_detail": s.memory.detail if s.memory else None,
        "memory_bytes": s.memory.bound if s.memory else None,
        "bf16": s.bf16,
        "intra": s.intra or None,
        "inter": s.inter or None,
        "model": s.model.name,
        "family": s.model.family or None,
        "architecture": s.model.architecture or None,
        "parameters": s.model.size,
    }


def _finish(
    resolved: Resolved,
    answers: dict[str, Answer],
    inputs: list[Any],
    questions: list[Question],
    decisions: list[Decision] | None = None,
    checks: list[Check] | None = None,
    snippets: list[Any] | None = None,
    extra: dict[str, Any] | None = None,
    notes: list[str] | None = None,
    not_done: tuple[str, ...] = (),
    measured: tuple[Fact, ...] = (),
) -> Guidance:
    cited = cite(decisions or [], resolved.release)
    identity = digest("plan", inputs, resolved.release.version, cited.knowledge)
    done = tuple(
        word
        for word, have in (
            ("exact accounting", extra and extra.get("accounting", {}).get("per_rank")),
            (f"{len(decisions or [])} decisions", decisions),
            (f"{cited.found} of {cited.total} cited claims found again in {resolved.release.path or 'the shipped index'}", cited.total),
        )
        if have
    )
    pending = tuple(f"{question.id}: not answered" for question in questions)
    return Guidance(
        workflow="plan",
        id=identity,
        torch=resolved.release,
        status="needs_answers" if questions else "complete",
        answers=dict(sorted(answers.items())),
        questions=tuple(questions),
        decisions=tuple(cited.decisions),
        facts=measured,
        snippets=tuple(snippets or ()),
        checks=(*(checks or ()), *cited.checks),
        sources=cited.sources,
        next=_next(identity, bool(questions), decisions),
        done=done,
        not_done=(*not_done, *pending, *cited.not_confirmed),
        approval=Approval("draft", APPROVE if decisions else ""),
        extra={**(extra or {}), "notes": list(notes or ())},
    )


def _next(identity: str, waiting: bool, decisions: list[Decision] | None) -> tuple[Next, ...]:
    if waiting or not decisions:
        return (Next("plan", {}, "answer the questions and plan again"),)
    out = []
    if any(decision.open for decision in decisions):
        out.append(Next("plan", {"measured": "FILE"}, "run the snippet 'measure' and plan again with its file, to close what is open"))
    out.append(Next("approve", {"id": identity}, "confirm the plan for use"))
    return tuple(out)
