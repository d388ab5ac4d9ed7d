"""What to do about uneven inputs where FSDP is in the loop, which Join cannot take."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from .loop import Loop

AGREE = "agree on the number of steps: an all_reduce (MIN) of how many batches each rank has, or each step of whether all have one"
PAD = "pad: a rank that has run out takes part with a batch whose loss is multiplied by 0"
EVEN = "the same number of batches on every rank: DistributedSampler repeats samples or drops the tail"


def use(loop: Loop) -> Decision:
    """Why Join is not it."""
    others = [part for part in loop.parts if part != "fsdp"]
    reasons = [
        "Neither FullyShardedDataParallel nor a model after fully_shard is Joinable: Join raises AttributeError, there is no join_hook.",
        "Every forward and backward of FSDP has collectives of all ranks: one that stops leaves the others hanging.",
    ]
    if others:
        reasons.append(
            "A Join around the other parts alone would not help: the FSDP collectives of the same iterations are not shadowed."
        )
    if loop.even:
        reasons.append("With as many batches on every rank nothing is needed at all.")
    why = Alternative("Join([model])", "It does not work with FSDP, and nothing of FSDP's is shadowed.")
    return Decision(
        "use",
        "no Join: FSDP is not Joinable",
        tuple(reasons),
        (why,),
        ("join.who.fsdp1", "join.who.fsdp2", "join.what"),
    )


def instead(loop: Loop) -> Decision:
    """The other answer to uneven inputs."""
    cited = (
        "fsdp2.per_layer.forward",
        "fsdp2.per_layer.backward",
        "fsdp1.full_shard",
        "eval.no_grad",
        "data.padding",
        "data.drop_last",
        "data.iterable",
    )
    if loop.even:
        even_ = ("Keep it so: evaluation loops and iterable datasets are where the numbers come apart.",)
        return Decision("instead", "nothing: the numbers of batches are equal", even_, (), cited)
    agree = Alternative(AGREE, "It drops the batches that only some ranks have.")
    pad = Alternative(
        PAD, "It costs whole forward and backward passes without use, and needs a batch of the right shape."
    )
    even = Alternative(EVEN, "Simplest, where the length of the data is known beforehand.")
    if loop.on_exhausted == "drain":
        drain = (
            "Every sample is used: ranks without data go through the same forward, backward and step, and add nothing to the gradients.",
            "Ranks stop together when none of them has a batch left, by an all_reduce of the number of samples in each step.",
            "FSDP divides by all ranks, those without data included: scale the loss by the samples of the step, as the code here does.",
        )
        return Decision("instead", PAD, drain, (agree, even), cited)
    reasons = (
        "All ranks leave the loop after the same step, so that every collective finds its counterparts.",
        "Where the length is known, one all_reduce before the epoch is enough; where it is not, one number in each step.",
    )
    return Decision("instead", AGREE, reasons, (even, pad), cited, open=not loop.on_exhausted)
