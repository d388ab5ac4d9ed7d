"""Documented rules, as comparisons of settings: of those that run now, and of the advice as it stands in its own words and code."""

from __future__ import annotations

import re

from shardguide.guidance.record import Check, Decision, Snippet

from ..numbers import Layout, gib, states
from ..situation import Situation
from .now import SHARDED, UNKNOWN, Now, read


def broken(s: Situation, now: Now) -> tuple[list[str], list[str]]:
    """(rules that the settings break, what could not be read to tell), each with the claim that says so.

    Nothing here knows how the settings came about, so the advice can fail it as well as the user's code.
    """
    wrong, unread = [], []
    low = {now.param, now.autocast}
    if "bfloat16" in low and s.bf16 is False and s.device != "cpu":
        wrong.append(f"bfloat16 on {s.gpu}, which has it only by emulation (bf16.check)")
    if "float16" in low:
        if now.scaler == "":
            wrong.append("float16 without a gradient scaler: small gradients become zero (fp16.scale)")
        elif now.scaler == UNKNOWN:
            unread.append(
                "float16, and no gradient scaler was read: without one small gradients become zero (fp16.scale)"
            )
        elif now.api == "fsdp1" and now.scaler == "GradScaler" and now.strategy != "none":
            wrong.append(
                "GradScaler under FSDP1, which needs ShardedGradScaler: ranks would disagree on infinities (fp16.fsdp1_scaler)"
            )
        elif now.api == "fsdp2" and not s.at_least(2, 5):
            wrong.append(
                "float16 under FSDP2 before 2.5: GradScaler does not combine the ranks' infinities there (fp16.fsdp2_scaler)"
            )
    if now.offload not in ("", UNKNOWN) and now.strategy == "none":
        wrong.append("CPU offload without sharding: it is a policy of FSDP (offload2.what)")
    if now.offload not in ("", UNKNOWN) and now.api == "fsdp2":
        _cpu_backend(s, now, wrong, unread)
    if now.api == "fsdp1" and now.strategy != "none" and now.clipping.startswith("torch.nn.utils."):
        wrong.append(
            f"{now.clipping} under FSDP1 clips by the norm of each rank's own shards; use model.clip_grad_norm_ (fsdp1.clip)"
        )
    if now.api == "fsdp2" and not s.has_fsdp2():
        wrong.append(f"fully_shard, which PyTorch {s.release.version} does not have (it came with 2.3)")
    names = (
        ("param", "compute dtype"),
        ("reduce", "reduce dtype"),
        ("offload", "CPU offload"),
        ("strategy", "sharding"),
    )
    missing = [
        word
        for field, word in names
        if getattr(now, field) in (UNKNOWN, SHARDED) and not (field == "reduce" and now.api == "ddp")
    ]
    if missing:
        unread.append(f"not read: {', '.join(missing)}")
    return wrong, unread


def _cpu_backend(s: Situation, now: Now, wrong: list[str], unread: list[str]) -> None:
    """Offloaded gradients are CPU tensors: clipping them is a collective that NCCL and XCCL do not serve."""
    if now.backend == UNKNOWN:
        unread.append(
            "CPU offload, and the process group's backend was not read: clipping needs one for CPU tensors (backend.nccl_devices)"
        )
        return
    backend = now.backend or ("cpu:gloo" if not s.at_least(2, 6) else "the accelerator's own")  # backend.unset
    if "gloo" in backend or "mpi" in backend or "cpu:" in backend or s.device == "cpu":
        return
    given = f"backend {now.backend!r} alone" if now.backend else "no backend given, so the accelerator's alone"
    error = "RuntimeError: No backend type associated with device type cpu"
    if now.clipping in ("", UNKNOWN):
        unread.append(
            f"CPU offload with {given}: {now.clipping or 'no'} clipping; gradient clipping would raise {error} (backend.nccl_devices)"
        )
    else:
        wrong.append(
            f"CPU offload with {given}, and {now.clipping} is called: the norm of CPU gradients is reduced over ranks, which raises "
            f"{error} (backend.nccl_devices); give init_process_group cpu:gloo as well"
        )


def current_check(s: Situation, now: Now, layout: Layout | None) -> list[Check]:
    """Check ``current``: what the present settings have that breaks a documented rule, or arithmetic."""
    if not now.known:
        return []
    wrong, unread = broken(s, now)
    if layout is not None and now.offload == "" and s.memory is not None:
        need = states(s, layout).total
        if need > s.memory.bound:
            wrong.append(
                f"its states take {gib(need)} on the largest rank, and the GPU has {s.memory.text}: as stated it cannot run"
            )
    if wrong:
        return [Check("current", "failed", f"{'; '.join(wrong)}.")]
    if unread:
        return [Check("current", "unknown", f"{'; '.join(unread)}.")]
    return [Check("current", "passed", "No documented rule is broken by the settings that were read.")]


def advised(decisions: list[Decision], api: str, strategy: str) -> Now:
    """The advice as its decisions say it, taken from their words and nothing else."""
    choice = {decision.id: decision.choice for decision in decisions}
    precision = choice["mixed_precision"]
    fields = dict(re.findall(r"(\w+)=(\w+)", precision))
    autocast = re.search(r"autocast to (\w+)", precision)
    param = autocast.group(1) if autocast else fields.get("param_dtype", UNKNOWN)
    scaling, offload = choice["gradient_scaling"], choice["cpu_offload"]
    on = "CPUOffload" in offload
    return Now(
        api=api,
        strategy=strategy,
        param="" if param == "None" else param,
        reduce=fields.get("reduce_dtype", UNKNOWN).replace("None", ""),
        offload=("pageable" if "pin_memory=False" in offload else "pinned") if on else "",
        scaler="ShardedGradScaler" if "Sharded" in scaling else "GradScaler" if "GradScaler" in scaling else "",
        clipping=choice["gradient_clipping"],
        backend=choice["backend"],
        known=True,
    )


def rules_check(s: Situation, decisions: list[Decision], api: str, strategy: str, snippets: list[Snippet]) -> Check:
    """Check ``rules``: the decisions against the documented rules, and against the code that is shown for them.

    The code is read back as a user's would be, so a setting that the decisions name and the code lacks is found.
    """
    says = advised(decisions, api, strategy)
    wrong, unread = broken(s, says)
    code = next((one.code for one in snippets if one.id == api), "")
    if code:
        from shardguide.code.current import from_python

        does = read(from_python(code, api), {}, s.minor)
        for field in ("api", "param", "reduce", "offload", "scaler", "backend"):
            said, done = getattr(says, field), getattr(does, field)
            if field == "reduce" and api == "ddp":
                continue
            if done == UNKNOWN:
                unread.append(f"the code's {field} was not read back")
            elif said != done:
                wrong.append(f"the decisions say {field} {said or 'none'}, the code has {done or 'none'}")
    if wrong:
        return Check("rules", "failed", f"{'; '.join(wrong)}.")
    if unread:
        return Check("rules", "unknown", f"{'; '.join(unread)}.")
    shown = "decisions and code agree with each other and with" if code else "decisions agree with"
    return Check(
        "rules", "passed", f"The {shown} the documented rules on dtypes, scaling, offload, backend and clipping."
    )
