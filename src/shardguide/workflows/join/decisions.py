"""The decisions about a loop without FSDP: Join or not, its flags, the order of its list, its process group."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from .loop import Loop

EVEN = Alternative(
    "the same number of batches on every rank",
    "Simplest where it is possible: DistributedSampler repeats the first samples or, with drop_last=True, drops the tail.",
)


def use(loop: Loop) -> Decision:
    """Join or not."""
    names = _names(loop)
    cited = ["join.what", "join.parts", *(f"join.who.{one}" for one in ("ddp", "zero") if one in loop.parts)]
    if loop.even:
        even = ("Ranks that get the same number of batches make the same collectives: there is nothing to shadow.",)
        other = Alternative(
            f"Join({loop.joinables}, enable=False)", "For code that is shared with runs whose inputs are uneven."
        )
        return Decision("use", "no Join is needed", even, (other,), (*cited, "join.enable"))
    listed = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    reasons = [
        f"{listed} {'is' if len(names) == 1 else 'are'} Joinable: ranks that have run out of batches shadow the collectives of the others.",
        "Put the whole loop over the batches into it, everything that communicates in an iteration into its list.",
    ]
    others = [EVEN]
    if loop.stale:
        reasons.append(
            "set_gradients is an object of your own, in the code below: without it the documented Join([model, optimizer]) trains wrongly "
            "once a rank has run out, since its share of the parameters is updated with that rank's old gradients."
        )
        others += [
            Alternative(
                "Join([model, optimizer])",
                "It ends without an error and with wrong parameters (run on 2.13.0, 2 and 3 processes over Gloo).",
            ),
            Alternative(
                "Join([optimizer, model])", "It hangs once a rank has run out (run on 2.13.0, 2 processes over Gloo)."
            ),
            Alternative(
                "Join([model])",
                "Nothing would shadow the optimizer's broadcasts. With another optimizer that has states (Adam) it is right for one epoch "
                "only: ranks that ran out miss steps.",
            ),
        ]
        cited += ["join.zero.stale", "join.zero.order", "join.ddp.optimizer"]
    elif loop.parts[:1] == ("ddp",) and "zero" not in loop.parts and not loop.throws:
        reasons.append(
            "With an optimizer that has states (momentum, Adam) Join([model]) is right for one epoch only: take the code below, "
            "which lets a rank that ran out make the others' steps."
        )
        cited.append("join.ddp.optimizer")
    reasons.append("Join stays on after its block, so switch it off there: Join([...], enable=False).")
    cited.append("join.stays_on")
    cited += ["data.padding", "data.drop_last"]
    if "ddp" in loop.parts:
        cited.append("join.ddp.last")
        if len(loop.parts) == 1:
            others.append(
                Alternative("model.join()", "The same for DistributedDataParallel alone; it takes no other Joinable.")
            )
            cited.append("join.ddp")
    return Decision("use", f"Join({loop.joinables}{_flags(loop)})", tuple(reasons), tuple(others), tuple(cited))


def _flags(loop: Loop) -> str:
    flags = ["throw_on_early_termination=True"] if loop.throws else []
    if "ddp" in loop.parts and loop.skew == "large" and not loop.throws:
        flags.append("divide_by_initial_world_size=False")
    return "".join(f", {flag}" for flag in flags)


def _names(loop: Loop) -> list[str]:
    words = {"ddp": "DistributedDataParallel", "zero": "ZeroRedundancyOptimizer", "own": "your own class"}
    return [words[part] for part in loop.parts if part in words]


def enable(loop: Loop) -> Decision:
    """When enable=False is right."""
    cited = ("join.enable", "join.enable.no_hooks", "join.notify.what")
    rule = "It is right only where the inputs are known to be even: it saves the all-reduce that each iteration makes for Join."
    wrong = "With uneven inputs no hook runs then, and ranks hang as they would without Join."
    if loop.even:
        why = Alternative("True", "It would cost an all-reduce an iteration, for nothing.")
        return Decision("enable", "False, where the context stays in the code", (rule, wrong), (why,), cited)
    reasons = [rule, wrong]
    if loop.uneven == "unknown":
        reasons.append("Whether the inputs are uneven is not known: until it is, leave it on.")
    return Decision(
        "enable", "True, the default", tuple(reasons), (Alternative("False", "The inputs may be uneven."),), cited
    )


def throw(loop: Loop) -> Decision:
    """When throw_on_early_termination=True is right."""
    cited = ["join.throw", "join.throw.when"]
    if loop.even:
        even = ("Nothing runs out early. With enable=False the flag does nothing.",)
        return Decision("throw_on_early_termination", "False, the default", even, (), (*cited, "join.enable"))
    if not loop.throws:
        open_ = not (loop.on_exhausted and loop.collectives)
        drain = (
            "The ranks that have batches left train on, until the last one is done; every sample is used.",
            "It is right only while nothing but the Joinables communicates in the loop.",
        )
        why = "All ranks would stop with the first. It is needed as soon as another collective is in the loop, SyncBatchNorm for example."
        return Decision(
            "throw_on_early_termination",
            "False, the default",
            drain,
            (Alternative("True", why),),
            tuple(cited),
            open=open_,
        )
    reasons = []
    if loop.collectives == "yes":
        reasons.append(
            "Nothing shadows the loop's other collectives: joined ranks would leave the others hanging in them, so all must stop."
        )
    if loop.on_exhausted == "drain":
        reasons.append(
            "Training on, as you wish, needs every collective shadowed: make a Joinable of what communicates, or take it out of the loop."
        )
    elif loop.on_exhausted == "stop":
        reasons.append("All ranks are to stop as soon as one has no more batches.")
    reasons += [
        "RuntimeError is raised on every rank; catch it around the with-block, on all of them, and go on with the next epoch.",
        "No post_hook runs then. Each iteration waits for a second all-reduce.",
    ]
    why = (
        "A joined rank would not take part in the other collectives."
        if loop.collectives == "yes"
        else "The others would train on."
    )
    return Decision(
        "throw_on_early_termination", "True", tuple(reasons), (Alternative("False", why),),
        (*cited, "join.throw.ranks", "join.throw.recover", "join.throw.cost"), open=loop.on_exhausted == "drain",
    )  # fmt: skip


def divide(loop: Loop) -> Decision:
    """DDP's own keyword: what gradients are divided by once ranks have joined."""
    name = "divide_by_initial_world_size"
    cited = ("join.ddp.divide", "join.ddp.divide_left", "join.kwargs")
    if loop.even or loop.throws:
        ignored = ("It is ignored: no rank trains on after another has run out.",)
        return Decision(name, "left alone", ignored, (), (*cited, "join.ddp.divide_ignored"))
    if loop.skew == "large":
        fewer = (
            "Gradients are divided by the number of ranks that still train, as if fewer ranks had trained from then on.",
            "PyTorch's documentation says that this may give better results where the numbers of batches differ a lot; compare both.",
        )
        why = "Every sample would count the same, and updates would become small while few ranks are left."
        return Decision(name, "False", fewer, (Alternative("True, the default", why),), cited, open=True)
    reasons = ("Every sample counts the same, also those that the last ranks train alone.",)
    why = "The samples of the uneven rest would weigh more; for inputs that differ a lot (--skew large)."
    return Decision(name, "True, the default", reasons, (Alternative("False", why),), cited)


def order(loop: Loop) -> Decision:
    """The order of the list."""
    reasons = [
        "The hooks run in the order of the list, so it must be the order of the collectives in an iteration.",
        "The first of the list speaks for all: its notify_join_context makes the all-reduce that Join counts with, so it must be the one "
        "that communicates first.",
    ]
    cited = ["join.hook.order", "join.notify.first", "join.device"]
    others = []
    if {"ddp", "zero"} <= set(loop.parts):
        reasons.append(
            "DistributedDataParallel communicates in forward and backward, ZeroRedundancyOptimizer in step()."
        )
        others.append(
            Alternative(
                "[optimizer, model]",
                "It hangs (run on 2.13.0, 2 processes over Gloo): step() would announce what forward has done.",
            )
        )
        cited += ["join.zero.order", "join.zero.grads"]
    if loop.stale:
        reasons.append(
            "set_gradients stands between the two: DDP's shadow throws the reduced gradients away, it gives them to the optimizer's."
        )
        others.append(
            Alternative(
                "[model, optimizer]",
                "The optimizer's shadow steps with the rank's own last gradients: wrong parameters.",
            )
        )
    if "own" in loop.parts:
        reasons.append(
            "Put your own class where its collectives are: before the model if it communicates before forward, at the end if after step()."
        )
        reasons.append(
            "A class that communicates between DDP's own collectives cannot be put anywhere: move its collectives."
        )
    return Decision("order", loop.joinables, tuple(reasons), tuple(others), tuple(cited))


def notify(loop: Loop) -> Decision:
    """Who calls notify_join_context, and when."""
    cited = ["join.notify", "join.notify.first", "join.notify.outside"]
    reasons = []
    for part, name, when in (
        ("ddp", "DistributedDataParallel", "at the beginning of forward"),
        ("zero", "ZeroRedundancyOptimizer", "in step()"),
    ):
        if part in loop.parts:
            reasons.append(f"{name} calls it itself, {when}.")
            cited.append(f"join.notify.{part}")
    if "own" not in loop.parts:
        return Decision("notify_join_context", "nothing to call in your loop", tuple(reasons), (), tuple(cited))
    reasons += [
        "Your own class must call Join.notify_join_context(self) in every iteration, before its own collectives.",
        "Outside Join the call does nothing.",
        "Its constructor must call Joinable.__init__, else the call raises AssertionError.",
    ]
    cited += ["join.joinable.init", "join.joinable.members"]
    return Decision(
        "notify_join_context", "first thing in your own class, before its collectives", tuple(reasons), (), tuple(cited)
    )


def process_group(loop: Loop) -> Decision:
    """One group for all joinables."""
    reasons = (
        "What is compared is each Joinable's join_process_group; PyTorch's docstring speaks of the JoinHooks, which have none.",
        "Joinables of different groups raise ValueError.",
    )
    cited = ("join.group", "join.group.whose")
    if loop.several_groups:
        return Decision(
            "process_group", "one for all of them: yours must be brought to one",
            (*reasons, "Joins inside each other are no way out: the inner one shadows its own group's collectives only."), (), cited,
        )  # fmt: skip
    return Decision("process_group", "one, the same for all joinables", reasons, (), cited)
