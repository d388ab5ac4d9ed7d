"""Decision ``mixed_precision``: every dtype field of the policy, for this hardware and these parameters."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout
from ..situation import Situation

LOW = ("bfloat16", "float16")


class Policy(NamedTuple):
    """The dtype fields of MixedPrecisionPolicy; "" stands for None."""

    param: str
    reduce: str
    output: str
    grad_scaler: bool  # float16 gradients need scaling


def policy(s: Situation) -> Policy:
    """bfloat16 where the device computes in it, float16 with scaling where it does not; reduction in float32.

    Parameters that are kept in a low dtype are computed in it, since there is nothing to cast them from: a device that does
    not have it natively makes the check of the plan fail. On the CPU no policy is set.
    """
    kept = s.main_dtype
    if kept in LOW:
        return Policy(kept, "float32", "", kept == "float16")
    if s.device == "cpu":
        return Policy("", "", "", False)
    low = "float16" if s.bf16 is False else "bfloat16"
    return Policy(low, "float32", "", low == "float16")


def native(s: Situation) -> str:
    """The question to PyTorch about bfloat16 that this release can answer."""
    return f"torch.cuda.is_bf16_supported({'including_emulation=False' if s.at_least(2, 4) else ''})"


def _why(s: Situation, chosen: Policy) -> tuple[list[str], list[str], list[Alternative]]:
    """Reasons, sources and alternatives for the compute dtype."""
    device = s.gpu or "the device"
    kept = f"You keep the parameters in {chosen.param}, so they are computed in it."
    if chosen.param == "float16":
        scaling = "float16 needs gradient scaling: its range is narrow, and a step with an overflow is skipped."
        sources = ["bf16.check", "fp16.scale", "fp16.fsdp2_scaler", "fp16.fsdp1_scaler"]
        if s.bf16:
            other = Alternative(
                "bfloat16",
                f"{device} computes in it natively and it needs no scaling: keep the parameters in bfloat16 or float32 for that.",
            )
            return [kept, scaling], sources, [other]
        lead = kept if s.main_dtype == "float16" else f"{device} has no native bfloat16."
        return (
            [lead, scaling],
            [*sources, "bf16.emulation"],
            [Alternative("bfloat16", "PyTorch would emulate it on this device.")],
        )
    range_ = "its exponent range is float32's, so no scaling is needed"
    other = Alternative(
        "float16", "Its range is narrower: gradients must be scaled, and a step with an overflow is skipped."
    )
    if s.bf16:
        return [f"{device} computes in bfloat16 natively; {range_}."], ["bf16.check"], [other]
    if s.bf16 is False:
        lead = f"{kept} {device} has no native bfloat16, so PyTorch emulates it: keep float32 parameters and compute in float16."
        return (
            [lead],
            ["bf16.check", "bf16.emulation"],
            [
                Alternative(
                    "float32 parameters, float16 compute", "It needs gradient scaling, and the device has it natively."
                )
            ],
        )
    if s.device in ("cuda", "rocm", ""):
        ask = f"whether this GPU has it natively is not known from what was said: check {native(s)}"
        return [f"bfloat16: {range_}; {ask}."], ["bf16.check", "bf16.emulation"], [other]
    return (
        [f"bfloat16: {range_}; that this device has it natively is not in the table of GPUs."],
        ["mp2.param_dtype", "fsdp1.mp.param_dtype"],
        [other],
    )


def decide(s: Situation, layout: Layout) -> Decision:
    """The policy with its reasons."""
    chosen = policy(s)
    if not chosen.param:
        why = "Whether a CPU computes faster in bfloat16 depends on the CPU: measure before lowering the precision."
        other = Alternative(
            "param_dtype=bfloat16", "Half the bytes of every all-gather; open until measured on this CPU."
        )
        cited = ("mp2.param_dtype", "fsdp1.mp.param_dtype")
        return Decision("mixed_precision", "no policy: float32 throughout", (why,), (other,), cited, open=True)
    reasons, sources, alternatives = _why(s, chosen)
    scaler = "; with GradScaler" if chosen.grad_scaler else ""
    if layout.strategy == "none":
        lead = "Without sharding there is no FSDP policy; torch.autocast chooses the dtype operation by operation."
        return Decision(
            "mixed_precision",
            f"autocast to {chosen.param}{scaler}",
            (lead, *reasons),
            tuple(alternatives),
            tuple(sources),
        )
    sources += [
        "mp2.param_dtype",
        "mp2.reduce_dtype",
        "mp2.output_dtype",
        "mp2.no_extra_copy",
        "practice.bf16_compute",
        "practice.fp32_reduce",
    ]
    reasons.append("Gradients are reduced in float32: the sum over ranks keeps its precision.")
    if s.has_fsdp2() and not s.at_least(2, 15):
        reasons.append(
            "reduce_dtype is stated, since None would mean the compute dtype here (from 2.15 on: the parameters' own)."
        )
    sources += ["mp2.reduce_dtype.none", "mp2.reduce_dtype.none_2_15", "fsdp1.mp.param_dtype", "fsdp1.mp.reduce_dtype"]
    low = Alternative(
        f"reduce_dtype={chosen.param}",
        "Half the bytes of the reduce-scatter, at the precision of the sum; measure the loss curve.",
    )
    alternatives.append(low)
    if s.main_dtype == "float32":
        sources += ["mp2.optimizer_dtype", "practice.fp32_master"]
        reasons.append(
            "The sharded parameters stay in float32 and the optimizer steps on them; no extra high-precision copy is made."
        )
        full = Alternative(
            "no policy (float32 throughout)", "Twice the bytes of every all-gather, and float32 matrix products."
        )
        alternatives.append(full)
    elif s.main_dtype:
        reasons.append(f"The optimizer steps on {s.main_dtype}: there is no float32 master copy.")
        if layout.replicate > 1:
            reasons.append(
                "Under hybrid sharding a reduce dtype other than the parameters' keeps one more buffer a group until the end of "
                "backward; its bytes stand in the accounting."
            )
            sources.append("fsdp2.hsdp.retention")
    choice = f"param_dtype={chosen.param}, reduce_dtype={chosen.reduce}, output_dtype=None{scaler}"
    return Decision("mixed_precision", choice, tuple(reasons), tuple(alternatives), tuple(dict.fromkeys(sources)))
