"""What runs now held against what was said about the run: contradictions become questions, and gaps are filled."""

from __future__ import annotations

from shardguide.guidance.record import Answer, Question

from .. import fields, prepare
from ..gather import ask
from ..numbers import Layout, states
from ..plan import mesh, running, sharding
from ..situation import Situation
from .now import SHARDED, Now


def reconcile(prepared: prepare.Prepared, s: Situation, now: Now) -> tuple[prepare.Prepared, Situation, Now]:
    """The request with what the current settings add to it; ``now`` with classes compared to the model's."""
    questions = list(prepared.questions)
    answers = dict(prepared.answers)
    notes = [*prepared.notes, *now.notes]
    if s.device in ("xpu", "cpu") and s.current is not None and s.current.language == "yaml":
        # accelerate takes the backend of the device that it finds; the YAML does not name it.
        own = running.backend_string(s, False)
        now = now._replace(backend=now.backend.replace("cuda:nccl", f"{s.torch_device}:{own}").replace("nccl", own))
    if now.optimizer:
        s = _optimizer(s, now, questions, answers)
    if now.tp > 1 and "tp" not in answers and s.world % now.tp == 0:
        s = s._replace(tp=now.tp, memo={})
        answers["tp"] = Answer(now.tp, f"file:{now.place('tp')}")
        if s.model.parameters and not s.model.tp_plan:
            questions.append(ask(fields.TP_PLAN))
    elif now.tp and now.tp != s.tp:
        questions.append(_conflict("tp", str(s.tp), now.place("tp"), str(now.tp)))
    if now.world > 1 and s.world and now.world != s.world:  # 1 is what a file written for one process says
        questions.append(_conflict("gpus", str(s.world), now.place("world"), str(now.world)))
    blocks = {unit.module_class for unit in s.model.units if unit.role == "block" and unit.module_class}
    if now.classes and blocks and set(now.classes) != blocks:
        named = ", ".join(now.classes)[:200]
        notes.append(
            f"{now.place('classes')}: it wraps {named}, while this model's repeated layers are {', '.join(sorted(blocks))}."
        )
        words = f"{', '.join(sorted(blocks))} wrapped, not {named}"
        now = now._replace(assumed=(*now.assumed, words))
    if now.api == "ddp":
        notes.append(
            "DDP's communication buckets, as large as the gradients together, come on top of what it holds, unless "
            "gradient_as_bucket_view=True makes the gradients views of them (claim ddp.bucket_view)."
        )
    prepared = prepared._replace(
        questions=_first(questions),
        answers=dict(sorted(answers.items())),
        notes=tuple(dict.fromkeys(notes)),
        situation=s,
    )
    return prepared, s, now


def _optimizer(s: Situation, now: Now, questions: list[Question], answers: dict[str, Answer]) -> Situation:
    """The optimizer of the file, momentum and amsgrad included: used where none was said, asked about where another was."""
    where = now.place("optimizer")
    questions[:] = [question for question in questions if question.id != "optimizer"]
    stated = answers.get("optimizer")
    if not s.optimizer or (stated is not None and stated.source.startswith("file:")):
        answers["optimizer"] = Answer(now.optimizer, f"file:{where}")
        return s._replace(optimizer=now.optimizer, memo={})
    if s.optimizer != now.optimizer:
        questions.append(_conflict("optimizer", s.optimizer, where, now.optimizer))
    return s


def _conflict(name: str, said: str, where: str, found: str) -> Question:
    return Question(
        name,
        f"You say {name} is {said}, {where} says {found}: which holds?",
        "The comparison would be made for one of them; correct the option or leave the file out.",
        (said, found),
    )


def _first(questions: list[Question]) -> tuple[Question, ...]:
    found: dict[str, Question] = {}
    for question in questions:
        found.setdefault(question.id, question)
    return tuple(found.values())


def present(s: Situation, now: Now) -> Layout | None:
    """The layout that runs now; None where it is not known or does not cover the ranks that were stated."""
    if now.tp and now.tp != s.tp:
        return None
    if now.strategy == "none":
        return Layout("none", s.dp, 1, s.tp)
    if now.strategy in ("full", "grad_op", SHARDED):
        strategy = "full" if now.strategy == SHARDED else now.strategy
        return Layout(strategy, 1, s.dp, s.tp) if now.shard in (0, s.dp) else None
    if now.strategy == "hybrid":
        size = now.shard or (s.dp // now.replicate if now.replicate and s.dp % now.replicate == 0 else 0)
        size = size or (s.dp_per_node if s.nodes else 0)
        if not size or s.dp % size or (now.replicate and now.replicate * size != s.dp):
            return None
        return Layout("hybrid", s.dp // size, size, s.tp)
    return None


def uncovered(s: Situation, now: Now) -> str:
    """Why a mesh that was read is not the one of the stated ranks; "" if it is, or if none was read."""
    if present(s, now) is not None or not now.shard:
        return ""
    parts = [
        f"{size} {name}" for size, name in ((now.replicate, "replicas"), (now.shard, "shards"), (now.tp, "tp")) if size
    ]
    place = now.place("strategy") or now.place("shard")
    return f"{place}: its mesh ({' × '.join(parts)}) is not that of {s.world} ranks, so what runs now has no numbers."


def recommended(s: Situation, now: Now) -> Layout:
    """The present sharding where it is known and can hold the states, for tuning leaves it alone; else a plan's choice."""
    chosen = sharding.decide(s)[1]
    kept = present(s, now)
    if kept is None or s.strategy != "auto" or (kept.strategy == "none" and s.offload == "yes"):
        return chosen
    need = states(s, kept).total
    if s.memory is not None and need > s.memory.bound and states(s, chosen).total < need:
        return chosen
    return mesh.place(s, kept) if now.api != "fsdp1" else kept
