"""The decisions on dtypes, scaling, clipping and checkpoints, in the terms of the API that is used."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout, gib
from ..plan import precision as plan_precision
from ..situation import Situation
from .costs import Costs, Side, costs
from .now import Now


def precision(s: Situation, layout: Layout, after: Now) -> Decision:
    """Every dtype field of the policy: its value, and what it costs in bytes held and moved."""
    base = plan_precision.decide(s, layout)
    if after.api == "ddp":
        return _autocast(s, layout, after, base)
    now = costs(s, Side(after, layout))
    hardware = base.because[0].replace("torch.amp.GradScaler", after.scaler or "torch.amp.GradScaler")
    reasons = [hardware, _param(s, layout, after, now), _reduce(s, layout, after, now)]
    sources: tuple[str, ...] = base.sources
    if after.api == "fsdp1":
        held = sum(_numel(buffer.shape) for buffer in s.model.buffers)
        many = "" if s.model.stated_size else f"{held:,} elements, "  # of a size alone the buffers are not known
        choice = f"MixedPrecision(param_dtype={after.param}, reduce_dtype={after.reduce}, buffer_dtype=None, cast_forward_inputs=True)"
        reasons += [
            f"buffer_dtype=None: buffers ({many}whole on every rank) keep their dtype; a low one would "
            "cast them in the first forward for good.",
            "cast_forward_inputs=True: what enters a wrapped layer is cast too; False, the default, casts the root's inputs only. "
            "It casts activations, which are measured, and moves nothing between ranks.",
        ]
        sources = ("fsdp1.mp.param_dtype", "fsdp1.mp.reduce_dtype", "fsdp1.mp.buffer_dtype", "fsdp1.mp.cast_forward_inputs",
                   *(one for one in sources if not one.startswith("mp2.")))  # fmt: skip
    else:
        fields = f"param_dtype={after.param}, reduce_dtype={after.reduce}, output_dtype=None, cast_forward_inputs=True"
        choice = f"MixedPrecisionPolicy({fields})"
        reasons += [
            f"output_dtype=None: outputs stay as computed, in {after.param}; another one casts activations, which are measured, and "
            "moves nothing between ranks. Set it where the loss wants float32 outputs.",
            "cast_forward_inputs=True, the default: floating-point inputs are cast to param_dtype; nothing moves between ranks.",
        ]
        sources = (*sources, "mp2.cast_forward_inputs")
    reasons += [
        reason for reason in base.because[1:] if "sharded parameters stay" in reason or "one more buffer" in reason
    ]
    reasons += [reason for reason in base.because[1:] if "no float32 master copy" in reason]
    return base._replace(choice=choice, because=tuple(reasons), sources=tuple(dict.fromkeys(sources)))


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _param(s: Situation, layout: Layout, after: Now, now: Costs) -> str:
    words = f"param_dtype={after.param}: the dtype of computation and of all-gathers. Between steps it changes nothing that is held"
    other = costs(s, Side(after._replace(param="", reduce=after.reduce), layout))
    if now.gathered is None or now.largest_gather is None or other.gathered is None:
        return f"{words}."
    held = f"; the largest group takes {gib(now.largest_gather)} while it is unsharded"
    return f"{words}{held}. A step all-gathers {gib(now.gathered)} ({gib(other.gathered)} without a param_dtype)."


def _reduce(s: Situation, layout: Layout, after: Now, now: Costs) -> str:
    words = f"reduce_dtype={after.reduce}: the sum over ranks keeps its precision"
    other = costs(s, Side(after._replace(reduce=after.param), layout))
    if now.scattered is not None and other.scattered is not None and now.largest_scatter is not None:
        words += (
            f". A step reduce-scatters {gib(now.scattered)} ({gib(other.scattered)} in {after.param}), the largest group from "
            f"{gib(now.largest_scatter)} of gradients that are held meanwhile"
        )
    if after.api == "fsdp1":
        return f"{words}. It is stated, since None would mean param_dtype."
    if s.at_least(2, 15):
        return f"{words}. It is stated, since what None means changed with 2.15."
    return f"{words}. It is stated, since None would mean param_dtype here (from 2.15 on: the parameters' own)."


def _autocast(s: Situation, layout: Layout, after: Now, base: Decision) -> Decision:
    moved = costs(s, Side(after, layout)).reduced
    size = f", {gib(moved)} a step" if moved else ""
    kept = f" ({s.main_dtype})" if s.main_dtype else ""
    reasons = (
        *base.because,
        f"reduce_dtype and the other fields of FSDP's policy do not apply: DDP all-reduces gradients in the parameters' dtype{kept}"
        f"{size}, and holds parameters, gradients and optimizer state in it, whatever autocast computes in.",
    )
    others = (
        *base.instead_of,
        Alternative(
            "no autocast", "Computation in the parameters' own dtype; it moves and holds the same between steps."
        ),
    )
    choice = f"autocast to {after.param}{'; with torch.amp.GradScaler' if after.scaler else ''}"
    return base._replace(choice=choice, because=reasons, instead_of=others, sources=(*base.sources, "ddp.replica"))


def scaling(after: Now) -> Decision:
    """Gradient scaling: for float16 alone, by the scaler that the API needs."""
    reasons: tuple[str, ...]
    if not after.scaler:
        reasons = (f"{after.param} has the exponent range of float32: nothing has to be scaled.",)
        other = Alternative(
            "GradScaler", "It is for float16: here it would multiply by a scale and check for infinities for nothing."
        )
        return Decision("gradient_scaling", "none", reasons, (other,), ("fp16.scale",))
    reasons = (
        "Small float16 gradients become zero and large ones infinite: the loss is scaled, and a step with infinities is skipped.",
        "scaler.unscale_(optimizer) comes before clipping, so that the true norm is clipped.",
        "It starts at 65536 and lowers itself, so the first steps may be skipped.",
    )
    others = [Alternative("none", "Small gradients would become zero.")]
    if after.api == "fsdp1":
        name, own = "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler", "fp16.fsdp1_scaler"
        others.append(
            Alternative("torch.amp.GradScaler", "Under FSDP1 the ranks would disagree on which steps to skip.")
        )
    else:
        name, own = "torch.amp.GradScaler", "fp16.fsdp2_scaler" if after.api == "fsdp2" else "fp16.scale"
        others.append(Alternative("ShardedGradScaler", "It is FSDP1's; GradScaler handles these gradients itself."))
    return Decision(
        "gradient_scaling", name, reasons, tuple(others), tuple(dict.fromkeys(("fp16.scale", "fp16.scale_start", own)))
    )


def clipping(after: Now) -> Decision:
    """Gradient clipping: what the API, the scaler and offload change."""
    if after.api == "fsdp1":
        return Decision(
            "gradient_clipping",
            after.clipping,
            (
                "FSDP1 computes the norm over all ranks' shards in this method of the root only; every rank calls it.",
                "With offload the norm is still reduced on the GPU.",
            ),
            (Alternative("torch.nn.utils.clip_grad_norm_", "It would take the norm of each rank's own shards."),),
            ("fsdp1.clip", "fsdp1.clip_all_ranks"),
        )
    if after.api == "ddp":
        return Decision(
            "gradient_clipping",
            after.clipping,
            (
                "After backward every rank has the whole averaged gradients, so each computes the same norm without communication.",
            ),
            (
                Alternative(
                    "clipping inside backward", "Before the all-reduce the gradients are those of one rank's data."
                ),
            ),
            ("clip.foreach", "ddp.replica"),
        )
    reasons = [
        "It works on DTensor gradients as it stands; the norm it returns is a DTensor (full_tensor() gives the number)."
    ]
    sources = ["practice.clip", "clip.foreach"]
    if after.offload:
        reasons.append(
            "Under offload the gradients are CPU tensors, so the norm is reduced over the CPU backend of the process group."
        )
        sources.append("backend.nccl_devices")
    other = Alternative("model.clip_grad_norm_", "That method is FSDP1's; a module under fully_shard has none.")
    return Decision("gradient_clipping", after.clipping, tuple(reasons), (other,), tuple(sources))


def checkpoints(s: Situation, after: Now, now: Now) -> Decision:
    """Checkpoints: that dtypes leave them alone, and what offload or a change of API does."""
    kept = f" ({s.main_dtype})" if s.main_dtype else ""
    if after.api == "ddp":
        reasons = [
            f"Every rank has the whole state in the dtype in which it is kept{kept}: autocast changes no checkpoint; rank 0 saves it."
        ]
        sources = ["dcp.get_state_dict", "ddp.replica"]
        other = Alternative("every rank saves", "All would write the same.")
        choice = "the state dict of the module inside DDP, from rank 0"
    else:
        reasons = [
            f"The state dict holds the sharded parameters in the dtype in which they are kept{kept}, whatever the compute dtype: another "
            "param_dtype changes no checkpoint."
        ]
        sources = ["dcp.get_state_dict", "dcp.save"]
        sources += ["fsdp1.mp.param_dtype"] if after.api == "fsdp1" else ["mp2.no_extra_copy"]
        other = Alternative(
            "a full state dict (full_state_dict=True)",
            "It gathers every tensor whole on each rank, or on rank 0 with cpu_offload.",
        )
        sources.append("dcp.full_state_dict")
        choice = "get_state_dict and torch.distributed.checkpoint"
    if after.offload:
        reasons.append("Under offload the shards that are saved and loaded are CPU tensors.")
    if now.known and now.api in ("fsdp1", "fsdp2", "ddp") and now.api != after.api:
        reasons.append(
            "A checkpoint of the present API is loaded with get_state_dict and set_state_dict, which take either form."
        )
    return Decision("checkpoints", choice, tuple(reasons), (other,), tuple(sources))
