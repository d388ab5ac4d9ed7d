"""Workflow W6, mixed precision and offload: from the current settings to recommended ones, with what each costs."""

from __future__ import annotations

from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.record import Decision, Guidance, Question, Snippet
from shardguide.guidance.serialise import plain
from shardguide.knowledge import snippets

from .. import prepare
from ..numbers import Layout, states
from ..plan import code, memory, precision, running
from ..plan.measuring import facts, peak_of
from ..request import PlanRequest
from ..situation import Situation
from . import agree, decisions, offload, rules
from .costs import Side
from .now import SHARDED, UNKNOWN, Now, from_words, read, usual_gathers
from .table import benefit, rows

APPROVE = "Should this configuration replace the current one? Nothing is changed before you confirm it."
ASK_CURRENT = Question(
    "current",
    "What do you run now? Hand over the code or the accelerate YAML (--current FILE), or say it (--now param=bf16).",
    "The table compares what you have with what is recommended.",
)


class TuneRequest(NamedTuple):
    """A plan's request, and what runs today in words."""

    base: PlanRequest
    now: tuple[str, ...] = ()  # "param=bfloat16", …


def tune(request: TuneRequest) -> Guidance:
    """The recommended dtypes and offload, with a before/after table.

    Raises UnusableInput for input that cannot be read and for options that contradict each other.
    """
    said = from_words(request.now)
    inputs = [sorted(said.items())]
    prepared = prepare.prepare(request.base)
    s = prepared.situation
    if s is None:
        return prepare.finish("tune", prepared, approve=APPROVE, inputs=inputs)
    now = read(s.current, said, s.minor)
    if s.current is not None:
        notes = (*prepared.notes, *s.current.notes)
        prepared = prepared._replace(notes=tuple(dict.fromkeys(notes)))
    if not now.known:
        prepared = prepared._replace(questions=(*prepared.questions, ASK_CURRENT))
    if not s.world:
        # Which dtype the GPU computes in holds for any number of them.
        early = [precision.decide(s, Layout("full", 1, 1, 1))] if s.bf16 is not None else []
        left = ("the other decisions: the number of GPUs is not known",) if early else ()
        return prepare.finish("tune", prepared, approve=APPROVE, inputs=inputs, decisions=early, not_done=left)
    prepared, s, now = agree.reconcile(prepared, s, now)
    return _advise(s, now, prepared, inputs)


def _api(s: Situation, layout: Layout, now: Now, scaler: bool) -> str:
    """The API in use where the release has it and it can express the layout; DDP where nothing is sharded."""
    if layout.strategy == "none":
        return "ddp"
    if not s.has_fsdp2() or (now.api == "fsdp1" and layout.tp == 1):
        return "fsdp1"
    # Before 2.5 GradScaler does not combine the ranks' infinities for DTensor gradients (claim fp16.fsdp2_scaler).
    return "fsdp1" if now.api != "fsdp2" and scaler and not s.at_least(2, 5) else "fsdp2"


def _after(s: Situation, layout: Layout, policy: precision.Policy, now: Now) -> Now:
    """The recommended settings, still without offload and backend."""
    api = _api(s, layout, now, policy.grad_scaler)
    scaler = ("ShardedGradScaler" if api == "fsdp1" else "GradScaler") if policy.grad_scaler else ""
    clip = "model.clip_grad_norm_" if api == "fsdp1" else "torch.nn.utils.clip_grad_norm_"
    if now.api == api and now.clipping.startswith("accelerator."):
        clip = now.clipping  # accelerate calls the right one
    return Now(
        api=api,
        strategy=layout.strategy,
        param=policy.param,
        reduce=policy.reduce,
        output=policy.output,
        buffer="",
        cast_inputs="True",
        autocast="",
        offload="",
        scaler=scaler,
        clipping=clip,
        wrapping=("block",) if api == "fsdp1" else ("block", "embedding", "head"),
        gathers=usual_gathers(api, layout.strategy),
        orig_params=True,
        known=True,
    )


def _snippets(s: Situation, layout: Layout, policy: precision.Policy, after: Now) -> code.Rendered:
    """The code of the recommended API, and what measures."""
    out = code.Rendered()
    spec = code.training_spec(s, layout, policy, bool(after.offload), False)._replace(offload=after.offload)
    render = {"ddp": snippets.render_ddp, "fsdp1": snippets.render_fsdp1, "fsdp2": snippets.render_fsdp2}[after.api]
    out.add("code", render, spec)
    if s.device != "cpu":
        out.add("measuring", snippets.measure, spec)
    return out


def _current(now: Now) -> dict[str, Any]:
    """The part ``current``: every setting that was said or read, with its place."""
    text = {name: value for name, value in now._asdict().items() if isinstance(value, str) and name != "api"}
    return {
        "api": None if now.api == UNKNOWN else now.api,
        "settings": {
            name: {"value": None if text[name] in (UNKNOWN, SHARDED) else text[name] or "None", "where": where}
            for name, where in now.where
            if name in text
        },
    }


def _advise(s: Situation, now: Now, prepared: prepare.Prepared, inputs: list[Any]) -> Guidance:
    layout = agree.recommended(s, now)
    policy = precision.policy(s)
    bare = _after(s, layout, policy, now)
    need = states(s, layout)
    kind, offload_decision = offload.decide(s, layout, bare, now, need, peak_of(s))
    after = bare._replace(offload=kind, backend=running.backend_string(s, bool(kind)))
    rendered = _snippets(s, layout, policy, after)
    made: list[Decision] = [
        decisions.precision(s, layout, after),
        decisions.scaling(after),
        offload_decision,
        running.backend(s, bool(kind)),
        decisions.clipping(after),
        decisions.checkpoints(s, after, now),
    ]
    present = agree.present(s, now)
    table = rows(s, Side(now, present), Side(after, layout))
    shown: list[Snippet] = rendered.snippets
    mismatch = agree.uncovered(s, now)
    return prepare.finish(
        "tune",
        prepared._replace(notes=(*prepared.notes, mismatch)) if mismatch else prepared,
        approve=APPROVE,
        inputs=inputs,
        decisions=made,
        checks=[
            memory.check(s, layout, need, bool(kind)),
            rules.rules_check(s, made, after.api, layout.strategy, shown),
            *rules.current_check(s, now, present),
        ],
        snippets=shown,
        measured=facts(s.measured),
        extra={
            "hardware": prepare.shown(s),
            "before_after": plain(table),
            "current": _current(now),
            "benefit": benefit(table, now, after),
        },
        not_done=tuple(rendered.not_done),
    )
