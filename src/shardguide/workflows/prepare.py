"""What the workflows on a model and a cluster share: from a request to a situation, and from decisions to a Guidance."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.model import Model
from shardguide.guidance.record import (
    Answer,
    Check,
    Decision,
    Fact,
    Guidance,
    Next,
    Question,
    Release,
    Snippet,
    Source,
)
from shardguide.guidance.serialise import digest
from shardguide.guidance.sha import sha256
from shardguide.knowledge.hardware.memory import parse_memory

from . import choices, fields, hardware, hardware_answers
from .evidence import Handed, read_files
from .finish import closing
from .gather import FileFact, Gathered, ask, counts, gather, partly
from .model import for_release, load, with_one_dimension
from .release import Resolved, resolve
from .remembered import still_true
from .request import PlanRequest
from .situation import Situation
from .sources import cite


def fingerprint(model: Model) -> str:
    """What identifies a model in a request: its configuration's digest, else every field and parameter."""
    if model.origin:
        return digest(model.origin, model.tp_plan, model.name)
    return sha256(repr(model._replace(notes=())).encode()).hexdigest()  # notes name the path as it was spelled


class Prepared(NamedTuple):
    """A request that was read: what is known, and what has to be asked."""

    release: Release
    answers: dict[str, Answer]
    model: Model | None
    situation: Situation | None  # None while no model is known
    questions: tuple[Question, ...]
    notes: tuple[str, ...]
    inputs: tuple[Any, ...]  # what identifies the request
    sources: tuple[Source, ...] = ()  # of the hardware facts that were used


def _model(gathered: Gathered) -> Model | None:
    text = gathered.value("model")
    if not text:
        return None
    model = load(text, gathered.value("implementation", ""))
    plan = gathered.value("tp_plan")
    if plan:
        from shardguide.readers.tp_plan import read_tp_plan

        return model._replace(tp_plan=read_tp_plan(plan))
    return model


def _derived(gathered: Gathered, handed: Handed) -> Gathered:
    """Totals that follow from the GPUs that a report shows on one host."""
    fact = handed.facts.get("gpus_per_node")
    gpus, nodes = gathered.value("gpus"), gathered.value("nodes")
    if fact is None or (gpus and nodes):
        return gathered
    answers = dict(gathered.answers)
    if nodes:
        answers["gpus"] = Answer(nodes * fact.value, fact.where)
    elif gpus and gpus % fact.value == 0:
        answers["nodes"] = Answer(gpus // fact.value, fact.where)
    return gathered._replace(answers=answers)


def _contradictions(gathered: Gathered, model: Model, minor: tuple[int, int]) -> None:
    """Refuse what cannot be meant together: options against each other and against the model."""
    strategy, tp = gathered.value("strategy", "auto"), gathered.value("tp", 1)
    gpus, size = gathered.value("gpus", 0), gathered.value("shard_size")
    if strategy == "none" and tp > 1:
        raise UnusableInput(
            "--strategy none (DDP) and --tp exclude each other: tensor parallelism is planned with fully_shard."
        )
    if strategy == "none" and gathered.value("offload") == "yes":
        raise UnusableInput(
            "--strategy none and --offload yes exclude each other: CPU offload is a policy of fully_shard."
        )
    if size and strategy not in ("auto", "hybrid"):
        raise UnusableInput(f"--shard-size belongs to --strategy hybrid, not to {strategy}.")
    node = gpus // gathered.value("nodes", 1)
    node_words = "the one GPU" if node == 1 else f"the {node} GPUs"
    if size and (0, 0) < minor < (2, 3) and size != node:
        raise UnusableInput(
            f"--shard-size {size}: before 2.3 there is FSDP1 only, whose HYBRID_SHARD shards over {node_words} of a node."
        )
    if size and gpus and size == gpus // tp > 1:
        raise UnusableInput(f"--shard-size {size} is all data-parallel ranks: that is --strategy full.")
    if tp > 1 and not gathered.value("tp_plan"):
        for count in model.heads:
            if count % tp:
                raise UnusableInput(
                    f"--tp {tp} does not divide the model's {count} attention or key-value heads, which transformers' "
                    "tensor-parallel plan splits; choose a divisor, or hand over a plan of your own (--tp-plan)."
                )


def _tp_plan(model: Model, tp: int) -> Model:
    """Refuse a plan of the user's that names no parameter of this model; unknown styles raise where they meet a parameter."""
    from shardguide.accounting.tensor_parallel import plan_of, split, style_of

    plan, used = plan_of(model.tp_plan), set()
    for one in model.parameters:
        style = style_of(one.name, plan)
        if style:
            used.add(style)
            split(one.name, one.shape, style, tp)
    for style in plan.values():
        if style not in used:
            split("weight", (tp, tp), style, tp)
    if not used and model.parameters:
        raise UnusableInput(
            f"--tp-plan: no pattern matches a parameter of this model, such as {model.parameters[0].name}."
        )
    return model


def _kept_dtype(gathered: Gathered, model: Model) -> str:
    """What was said; for a manifest, which lists the user's own model, the dtypes that it states."""
    said: str = gathered.value("param_dtype", "")
    stated = bool(model.parameters) and all(one.dtype for one in model.parameters)
    if said == fields.AS_STORED and not stated:
        raise UnusableInput(
            "--param-dtype stored needs a file that states every parameter's dtype: safetensors or a manifest."
        )
    return said or (fields.AS_STORED if stated and model.implementation == "manifest" else "")


def _situation(
    gathered: Gathered, resolved: Resolved, model: Model, found: hardware.Hardware, handed: Handed
) -> Situation:
    gpus = gathered.value("gpus", 0)
    host = gathered.value("host_memory")
    size = parse_memory(host) if host else None
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
        param_dtype=_kept_dtype(gathered, model),
        strategy=gathered.value("strategy", "auto"),
        shard_size=gathered.value("shard_size", 0),
        offload=gathered.value("offload", "auto"),
        measured=handed.measured,
        current=handed.current,
        weights=gathered.value("weights", "random"),
        memo={},
    )


def _questions(
    s: Situation, gathered: Gathered, resolved: Resolved, found: hardware.Hardware, handed: Handed
) -> list[Question]:
    """What is neither known nor given, in the order in which it is asked."""
    open_: list[Question] = [*resolved.questions, *gathered.conflicts]
    per_node = handed.facts.get("gpus_per_node")
    if not s.world and per_node is None:
        open_.append(ask(fields.GPUS))
    if not s.nodes and s.world != 1:
        nodes = ask(fields.NODES)
        if per_node is not None:
            count = f"{per_node.value} GPU{'s' if per_node.value > 1 else ''}"
            shown = f"{per_node.where.removeprefix('file:')} shows {count} on one host. On how many such hosts do you train?"
            nodes = nodes._replace(ask=shown)
        open_.append(nodes)
    if found.questions:
        open_.extend(found.questions)
    elif s.memory is None and s.device != "cpu":
        open_.append(ask(fields.GPU))
    if s.device == "cpu" and s.host_memory is None:
        open_.append(ask(fields.HOST_MEMORY))
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
    if s.tp > 1 and s.model.parameters and not s.model.tp_plan:
        open_.append(ask(fields.TP_PLAN))
    if s.strategy == "hybrid" and s.nodes and s.dp_per_node in (1, s.dp) and not s.shard_size:
        open_.append(ask(fields.SHARD_SIZE))
    first: dict[str, Question] = {}
    for question in open_:
        first.setdefault(question.id, question)
    return [choices.fitting(question, gathered, found) for question in first.values()]


def _cluster(gathered: Gathered, found: hardware.Hardware, per_node: FileFact | None) -> tuple[Question, ...]:
    """What is asked of the GPUs while the model is not known: whoever cannot say that yet still says the rest."""
    gpus, nodes = gathered.value("gpus"), gathered.value("nodes")
    known = found.memory is not None or found.device == "cpu"
    return (
        *((ask(fields.GPUS),) if not gpus and per_node is None else ()),
        *((ask(fields.NODES),) if not nodes and gpus != 1 else ()),
        *(found.questions or (() if known else (ask(fields.GPU),))),
    )


def prepare(request: PlanRequest) -> Prepared:
    """Read everything that was handed over.

    Raises UnusableInput for input that cannot be read and for options that contradict each other.
    """
    handed = read_files(request.files, request.measured, request.current, request.given, request.remembered)
    gathered = gather(fields.PLAN, request.given, handed.facts, still_true(request, handed))
    gathered = gathered._replace(conflicts=(*handed.questions, *gathered.conflicts))
    per_node = handed.facts.get("gpus_per_node")
    gathered = counts(_derived(gathered, handed), per_node)
    handed = handed._replace(notes=(*handed.notes, *partly(gathered, per_node)))
    gathered, found = hardware_answers.understand(gathered, handed.facts)
    report = handed.facts.get("torch")
    resolved = resolve(
        request.given.get("torch"),
        request.site_packages,
        request.remembered.get("torch"),
        (str(report.value), report.where) if report else None,
    )
    answers = {name: answer for name, answer in gathered.answers.items() if name != "torch"}
    if resolved.release.version:
        answers["torch"] = Answer(resolved.release.version, resolved.release.known_from)
    model = _model(gathered)
    # What was answered, not how it became known or how a path was spelled: the same request has the same id.
    inputs = (
        sorted((name, answer.value) for name, answer in answers.items() if name not in ("model", "torch", "tp_plan")),
        handed.digest,
        model and fingerprint(model),
        sorted(request.also),
    )
    if model is None:
        waiting = (*resolved.questions, *gathered.conflicts, ask(fields.MODEL), *_cluster(gathered, found, per_node))
        waiting = tuple(choices.fitting(question, gathered, found) for question in waiting)
        return Prepared(resolved.release, answers, None, None, waiting, handed.notes, inputs)
    model, scalars = with_one_dimension(for_release(model, resolved.minor))
    _contradictions(gathered, model, resolved.minor)
    if gathered.value("tp_plan"):
        _tp_plan(model, gathered.value("tp", 1))
    s = _situation(gathered, resolved, model, found, handed)._replace(scalars=scalars)
    questions = tuple(_questions(s, gathered, resolved, found, handed))
    notes = (*model.notes, *found.notes, *handed.notes)
    return Prepared(resolved.release, answers, model, s, questions, notes, inputs, found.sources)


def shown(s: Situation) -> dict[str, Any]:
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


def finish(
    workflow: str,
    prepared: Prepared,
    approve: str,
    inputs: list[Any] | None = None,
    decisions: list[Decision] | None = None,
    checks: list[Check] | None = None,
    snippets: list[Snippet] | None = None,
    measured: tuple[Fact, ...] = (),
    extra: dict[str, Any] | None = None,
    not_done: tuple[str, ...] = (),
    next_: tuple[Next, ...] = (),
) -> Guidance:
    """The record: sources looked up, identity worked out, done and not done said."""
    cited = cite(decisions or [], prepared.release)
    identity = digest(workflow, prepared.inputs, inputs or [], prepared.release.version, cited.knowledge)
    if not decisions:
        missing = (
            "everything: no model is known yet"
            if prepared.model is None
            else "decisions: the number of GPUs is not known"
        )
        not_done = (*not_done, missing)
    where = prepared.release.path or "the shipped index"
    done = tuple(
        word
        for word, have in (
            ("exact accounting", bool(extra and extra.get("accounting", {}).get("per_rank"))),
            (f"{len(decisions or [])} decisions", bool(decisions)),
            (f"{cited.found} of {cited.total} cited claims found again in {where}", bool(cited.total)),
        )
        if have
    )
    waiting = bool(prepared.questions)
    next_, approval = closing(workflow, identity, approve, waiting, bool(decisions), checks or (), next_)
    return Guidance(
        workflow=workflow,
        id=identity,
        torch=prepared.release,
        status="needs_answers" if waiting else "partial" if not_done else "complete",
        answers=dict(sorted(prepared.answers.items())),
        questions=prepared.questions,
        decisions=cited.decisions,
        facts=measured,
        snippets=tuple(snippets or ()),
        checks=(*(checks or ()), *cited.checks),
        sources=(*cited.sources, *(prepared.sources if decisions else ())),
        next=next_,
        done=done,
        not_done=(
            *not_done,
            *(f"{question.id}: not answered" for question in prepared.questions),
            *cited.not_confirmed,
        ),
        approval=approval,
        request=digest(workflow, prepared.inputs, inputs or []),
        extra={**(extra or {}), "notes": list(prepared.notes)},
    )
