"""Decision ``mixed_precision``: every dtype field of the policy, for this hardware and these parameters."""

from __future__ import annotations

from shardguide.guidance.named import NamedTuple
from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout
from ..situation import Situation


class Policy(NamedTuple):
    """The dtype fields of MixedPrecisionPolicy; "" stands for None."""

    param: str
    reduce: str
    output: str
    grad_scaler: bool  # float16 gradients need scaling


def policy(s: Situation) -> Policy:
    """bfloat16 where the device computes in it, float16 with scaling where it does not; reduction in float32."""
    low = "float16" if s.bf16 is False and s.device != "cpu" else "bfloat16"
    if s.main_dtype in ("bfloat16", "float16"):
        # Parameters that are kept in a low dtype are computed in it: there is nothing to cast.
        return Policy(s.main_dtype, "float32", "", s.main_dtype == "float16")
    return Policy(low, "float32", "", low == "float16")


def decide(s: Situation, layout: Layout) -> Decision:
    """The policy with its reasons."""
    chosen = policy(s)
    ddp = layout.strategy == "none"
    reasons = []
    sources = [
        "mp2.param_dtype",
        "mp2.reduce_dtype",
        "mp2.output_dtype",
        "mp2.no_extra_copy",
        "practice.bf16_compute",
        "practice.fp32_reduce",
    ]
    alternatives = []
    if chosen.param == "bfloat16":
        if s.bf16:
            reasons.append(
                f"{s.gpu or 'The device'} computes in bfloat16 natively; its exponent range is float32's, so no scaling is needed."
            )
            sources.append("bf16.check")
        elif s.bf16 is None:
            reasons.append(
                "bfloat16 needs no gradient scaling. Whether this GPU has it natively is not known from its memory alone: check "
                "torch.cuda.is_bf16_supported(including_emulation=False)."
            )
            sources.append("bf16.check")
        alternatives.append(
            Alternative(
                "float16", "Its range is narrower: gradients must be scaled, and a step with an overflow is skipped."
            )
        )
    else:
        reasons.append(
            f"{s.gpu or 'The device'} has no native bfloat16; float16 needs gradient scaling (torch.amp.GradScaler)."
        )
        sources += ["bf16.check", "bf16.emulation", "fp16.scale", "fp16.fsdp2_scaler", "fp16.fsdp1_scaler"]
        alternatives.append(Alternative("bfloat16", "PyTorch would emulate it on this device."))
    reasons.append("Gradients are reduced in float32: the sum over ranks keeps its precision.")
    if not s.at_least(2, 15):
        reasons.append(
            "reduce_dtype is stated, since None would mean the compute dtype here (from 2.15 on: the parameters' own)."
        )
    sources += ["mp2.reduce_dtype.none", "mp2.reduce_dtype.none_2_15", "fsdp1.mp.param_dtype", "fsdp1.mp.reduce_dtype"]
    alternatives.append(
        Alternative(
            "reduce_dtype=bfloat16",
            "Half the bytes of the reduce-scatter, at the precision of the sum; measure the loss curve.",
        )
    )
    if s.main_dtype == "float32":
        sources += ["mp2.optimizer_dtype", "practice.fp32_master"]
        reasons.append(
            "The sharded parameters stay in float32 and the optimizer steps on them; no extra high-precision copy is made."
        )
        alternatives.append(
            Alternative(
                "no policy (float32 throughout)", "Twice the bytes of every all-gather, and float32 matrix products."
            )
        )
    elif s.main_dtype:
        reasons.append(
            f"You keep the parameters in {s.main_dtype}: the optimizer steps on that precision, there is no float32 master copy."
        )
    if s.main_dtype and s.main_dtype != "float32" and layout.replicate > 1 and not ddp:
        reasons.append(
            "Under hybrid sharding a reduce dtype other than the parameters' keeps one more buffer a group until the end of backward; "
            "its bytes stand in the accounting."
        )
        sources.append("fsdp2.hsdp.retention")
    scaler = "; with GradScaler" if chosen.grad_scaler else ""
    if ddp:
        choice = f"autocast to {chosen.param}{scaler}"
        reasons.insert(
            0, "Without sharding there is no FSDP policy; torch.autocast chooses the dtype operation by operation."
        )
        sources = [name for name in sources if name in ("bf16.check", "bf16.emulation", "fp16.scale")] or ["bf16.check"]
        alternatives = alternatives[:1]
        reasons = [reason for reason in reasons if "reduce" not in reason and "extra" not in reason]
    else:
        choice = f"param_dtype={chosen.param}, reduce_dtype={chosen.reduce}, output_dtype=None{scaler}"
    return Decision("mixed_precision", choice, tuple(reasons), tuple(alternatives), tuple(dict.fromkeys(sources)))
