"""Workflow W6, mixed precision and offload: from the current settings to recommended ones, with what each costs."""

from __future__ import annotations

from shardguide.guidance.named import NamedTuple
from shardguide.guidance.record import Alternative, Check, Decision, Guidance, Question
from shardguide.guidance.serialise import plain

from .. import prepare
from ..numbers import Layout, gib, states
from ..plan import code, fsdp1, memory, mesh, precision, running, sharding
from ..plan.measuring import facts, peak_of
from ..request import PlanRequest
from ..situation import Situation
from .now import Now, from_words, read
from .table import Row, Setup, rows

APPROVE = "Should this configuration replace the current one? Nothing is changed before you confirm it."


class TuneRequest(NamedTuple):
    """A plan's request, and what runs today in words."""

    base: PlanRequest
    now: tuple[str, ...] = ()  # "param=bfloat16", …


def tune(request: TuneRequest) -> Guidance:
    """The recommended dtypes and offload, with a before/after table.

    Raises UnusableInput for input that cannot be read and for options that contradict each other.
    """
    said = from_words(request.now)
    prepared = prepare.prepare(request.base)
    if prepared.situation is None:
        return prepare.finish("tune", prepared, approve=APPROVE, inputs=[sorted(said.items())])
    s = prepared.situation
    current = read(s.current, said)
    questions = list(prepared.questions)
    if not current.known:
        questions.append(
            Question(
                "current",
                "What do you run now? Hand over the code or the accelerate YAML (--current FILE), or say it (--now param=bf16).",
                "The table compares what you have with what is recommended.",
            )
        )
    if not s.world:
        return prepare.finish(
            "tune", prepared._replace(questions=tuple(questions)), approve=APPROVE, inputs=[sorted(said.items())]
        )
    return _advise(s, current, prepared._replace(questions=tuple(questions)), said)


def _layout(s: Situation, current: Now) -> Layout:
    """The current sharding where it is known, for tuning leaves it alone; else what a plan would choose."""
    if current.strategy and s.strategy == "auto":
        size = {"none": 1, "hybrid": current.shard_size or s.dp_per_node}.get(current.strategy, s.dp)
        if s.dp % size == 0:
            return mesh.place(s, Layout(current.strategy, s.dp // size, size, s.tp))
    return mesh.place(s, sharding.decide(s)[1])


def _offload(s: Situation, layout: Layout, current: Now) -> tuple[str, Decision]:
    """Whether to offload, from arithmetic and measurement."""
    need = states(s, layout)
    peak = peak_of(s)
    decision = memory.cpu_offload(s, layout, need, peak)
    if memory.offloads(s, layout, need):
        return "pinned", decision
    if current.offload and s.offload == "auto" and peak is not None and s.memory is not None:
        total = peak.total or s.memory.bound
        if peak.peak + need.total > memory.SHORT * total:
            words = (
                f"Closed by your measurement: with offload the {peak.words(s)}; the shards ({gib(need.total)}) on the GPU as well "
                f"would pass {memory.SHORT:.0%} of {gib(total)}."
            )
            return current.offload, Decision("cpu_offload", "CPUOffloadPolicy stays", (words,), (), decision.sources)
        words = (
            f"With offload the {peak.words(s)}; with the shards ({gib(need.total)}) on the GPU as well the sum stays below "
            f"{memory.SHORT:.0%} of {gib(total)}. Measure again."
        )
        return "", decision._replace(choice="no", because=(words,), open=True)
    return "", decision


def _precision(s: Situation, layout: Layout, policy: precision.Policy, api: str) -> Decision:
    decision = precision.decide(s, layout)
    return fsdp1.precision(s, policy, decision) if api == "fsdp1" and layout.strategy != "none" else decision


def _scaling(policy: precision.Policy, api: str) -> Decision:
    if policy.grad_scaler:
        name = "ShardedGradScaler" if api == "fsdp1" else "torch.amp.GradScaler"
        reasons = (
            "float16 gradients underflow and overflow: the loss is scaled, and a step with infinities is skipped.",
        )
        return Decision("gradient_scaling", name, reasons, (Alternative("none", "Small gradients would become zero."),),
                        ("fp16.scale", "fp16.fsdp2_scaler", "fp16.fsdp1_scaler"))  # fmt: skip
    reasons = (f"{policy.param} has the exponent range of float32: nothing has to be scaled.",)
    return Decision(
        "gradient_scaling", "none", reasons, (Alternative("GradScaler", "It is for float16."),), ("fp16.scale",)
    )


def _clipping(api: str, offload: str) -> Decision:
    if api == "fsdp1":
        return Decision("gradient_clipping", "FullyShardedDataParallel.clip_grad_norm_ on the root", (
            "FSDP1 computes the norm over all ranks' shards in this method only; every rank calls it.",
        ), (), ("fsdp1.clip", "fsdp1.clip_all_ranks"))  # fmt: skip
    reasons = [
        "It works on DTensor gradients as it stands; the norm that it returns is a DTensor (full_tensor() gives the number)."
    ]
    if offload:
        reasons.append(
            "Under offload the gradients are CPU tensors, so the norm is reduced over the CPU backend of the process group."
        )
    return Decision(
        "gradient_clipping",
        "torch.nn.utils.clip_grad_norm_",
        tuple(reasons),
        (),
        ("practice.clip", "clip.foreach", "backend.nccl_devices"),
    )


def _checkpoints(s: Situation, offload: str) -> Decision:
    reasons = [
        "The state dict holds the sharded parameters in the dtype in which they are kept"
        f"{f' ({s.main_dtype})' if s.main_dtype else ''}, whatever the compute dtype: another param_dtype in the policy changes no checkpoint.",
    ]
    if offload:
        reasons.append("Under offload the shards that are saved and loaded are CPU tensors.")
    return Decision("checkpoints", "get_state_dict and torch.distributed.checkpoint, unchanged", tuple(reasons), (),
                    ("mp2.no_extra_copy", "dcp.get_state_dict", "dcp.save", "fsdp1.full_state_dict", "fsdp1.mp.param_dtype"))  # fmt: skip


def _current_check(current: Now) -> list[Check]:
    """What the current settings have that breaks a documented rule."""
    if not current.known:
        return []
    problems = []
    if current.param == "float16" and not current.scaler:
        problems.append("float16 without a gradient scaler was read: small gradients become zero")
    if current.offload and current.backend in ("nccl", "xccl"):
        problems.append(
            f"CPU offload with the backend {current.backend} alone was read: collectives on CPU tensors have none"
        )
    unread = [name for name in ("param", "reduce", "output") if getattr(current, name) == "unknown"]
    if problems:
        return [Check("current", "failed", "; ".join(problems) + ".")]
    if unread:
        return [Check("current", "unknown", f"Not read without running the code: {', '.join(unread)}.")]
    return [Check("current", "passed", "No documented rule is broken by the settings that were read.")]


def _checks(s: Situation, policy: precision.Policy, offload: str, backend: str, layout: Layout) -> list[Check]:
    """The advice against the documented rules and the user's limits; each can fail."""
    problems = []
    if policy.param == "bfloat16" and s.bf16 is False and s.device != "cpu":
        problems.append(f"{s.gpu} has no native bfloat16")
    if policy.param == "float16" and not policy.grad_scaler:
        problems.append("float16 without gradient scaling")
    if offload and layout.strategy == "none":
        problems.append("CPUOffloadPolicy without sharding")
    if offload and "gloo" not in backend:
        problems.append("offload without a CPU backend")
    words = (
        "; ".join(problems) + "."
        if problems
        else "dtypes, scaler, offload and backend agree with the documented rules."
    )
    return [
        memory.check(s, layout, states(s, layout), bool(offload)),
        Check("rules", "failed" if problems else "passed", words),
    ]


def _advise(s: Situation, current: Now, prepared: prepare.Prepared, said: dict[str, str]) -> Guidance:
    layout = _layout(s, current)
    policy = precision.policy(s)
    offload, offload_decision = _offload(s, layout, current)
    backend = running.backend_string(s, bool(offload))
    api = current.api or ("fsdp2" if s.has_fsdp2() else "fsdp1")
    scaler = ("ShardedGradScaler" if api == "fsdp1" else "GradScaler") if policy.grad_scaler else ""
    after = Setup(layout, policy.param, policy.reduce, policy.output, offload, scaler, backend, api)
    before = None
    if current.known:
        before = Setup(
            layout,
            _dtype(current.param),
            _reduce(s, current),
            current.output,
            current.offload,
            current.scaler,
            current.backend,
            api,
            bool(current.strategy),
        )
    decisions = [
        _precision(s, layout, policy, api),
        _scaling(policy, api),
        offload_decision,
        running.backend(s, bool(offload)),
        _clipping(api, offload),
        _checkpoints(s, offload),
    ]
    rendered = code.render(s, layout, policy, bool(offload), False, ("fsdp1",) if api == "fsdp1" else ())
    table = rows(s, before, after)
    kept = [snippet for snippet in rendered.snippets if snippet.id in ("fsdp2", "fsdp1", "ddp", "measure")]
    return prepare.finish(
        "tune",
        prepared,
        approve=APPROVE,
        inputs=[sorted(said.items())],
        decisions=decisions,
        checks=[*_checks(s, policy, offload, backend, layout), *_current_check(current)],
        snippets=kept,
        measured=facts(s.measured),
        extra={
            "hardware": prepare.shown(s),
            "before_after": plain(table),
            "current": {
                "api": current.api or None,
                "settings": {
                    name: {"value": str(getattr(current, name, "")) or None, "where": where}
                    for name, where in current.where
                },
            },
            "benefit": _benefit(table, current),
        },
        not_done=tuple(rendered.not_done),
    )


def _dtype(text: str) -> str:
    return "" if text == "unknown" else text


def _reduce(s: Situation, current: Now) -> str:
    """The dtype that gradients are reduced in today: None follows param_dtype up to 2.14, the parameter from 2.15 on."""
    if current.reduce or current.api == "ddp":
        return _dtype(current.reduce)
    return "" if s.minor >= (2, 15) else _dtype(current.param)


def _benefit(table: tuple[Row, ...], current: Now) -> list[str]:
    """What changes, in exact bytes; no statement about time."""
    if not current.known:
        return []
    out = []
    for row in table:
        if (
            row.unit == "bytes"
            and isinstance(row.before, int)
            and isinstance(row.after, int)
            and row.before != row.after
        ):
            more = "more" if row.after > row.before else "less"
            out.append(f"{row.name}: {gib(abs(row.after - row.before))} {more} ({gib(row.before)} to {gib(row.after)})")
        elif not row.unit and row.before not in (None, row.after):
            out.append(f"{row.name}: {row.before} to {row.after}")
    return out or ["Nothing changes: the current settings are the recommended ones."]
