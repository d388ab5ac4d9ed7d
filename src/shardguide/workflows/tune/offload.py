"""Decision ``cpu_offload`` for something that runs: what is there stays until arithmetic or a measurement decides."""

from __future__ import annotations

from shardguide.guidance.record import Alternative, Decision

from ..numbers import Layout, States, gib, said
from ..plan import memory
from ..situation import Situation
from .costs import Costs, Side, costs
from .now import UNKNOWN, Now

SOURCES = {
    "fsdp2": ("offload2.what", "offload2.transfers", "offload2.default", "offload2.all_or_nothing"),
    "fsdp1": ("offload1.what", "offload1.default", "offload1.accumulation"),
    "ddp": ("offload2.what", "offload1.what"),
}  # fmt: skip


def name(api: str, offload: str) -> str:
    """The policy as it is written."""
    if api == "fsdp1":
        return "CPUOffload(offload_params=True)"
    return f"CPUOffloadPolicy(pin_memory={offload != 'pageable'})"


def decide(
    s: Situation, layout: Layout, after: Now, now: Now, need: States, peak: memory.Peak | None
) -> tuple[str, Decision]:
    """("", "pinned" or "pageable", the decision). ``after`` is the recommended side, still without offload."""
    api = after.api
    kind = "pageable" if api == "fsdp2" and now.offload == "pageable" else "pinned"
    yes = name(api, kind)
    if layout.strategy == "none" or s.device == "cpu":
        why = (
            "The device is the CPU already."
            if s.device == "cpu"
            else "CPU offload is a policy of FSDP; nothing is sharded here."
        )
        other = "There is no other memory to move the shards to." if s.device == "cpu" else (
            f"It would need the model to be sharded, and the states ({said(need)}) are not over the GPU's memory."
        )  # fmt: skip
        return "", Decision("cpu_offload", "no", (why,), (Alternative(yes, other),), SOURCES[api])
    moved = costs(s, Side(after._replace(offload=kind), layout))
    price = _price(moved, need)
    if memory.offloads(s, layout, need):
        why = "You asked for it." if s.offload == "yes" else (
            f"The states alone exceed the GPU: {said(need)} on the largest rank, of {s.memory.text if s.memory else '?'}."
        )  # fmt: skip
        no = Alternative(
            "no",
            "It would spare the copies."
            if s.offload == "yes"
            else "More GPUs, or a smaller optimizer state, would be needed.",
        )
        return kind, _on(s, api, kind, yes, (why, price), no, need, False)
    if s.offload == "no":
        return "", Decision("cpu_offload", "no", ("You ruled it out.",), (Alternative(yes, price),), SOURCES[api])
    if now.offload in ("pinned", "pageable", "yes"):
        return _present(s, api, kind, yes, price, need, peak)
    decision = memory.cpu_offload(s, layout, need, peak)
    because = decision.because
    if now.offload == UNKNOWN and now.known:
        because = (*because, "Whether you offload now was not read; if you do, keep it until you have measured.")
    return "", decision._replace(because=because, instead_of=(Alternative(yes, price),), sources=SOURCES[api])


def _price(moved: Costs, need: States) -> str:
    if moved.to_device is None or moved.to_host is None:
        copies = "each step copies the shards to the GPU and the gradient shards back"
    else:
        copies = f"each step copies {gib(moved.to_device)} to the GPU and {gib(moved.to_host)} back"
    held = f"{said(need)} a rank" if need.total else "the shards"
    return f"It holds {held} in host memory instead: {copies}, and the optimizer steps on the CPU."


def _present(
    s: Situation, api: str, kind: str, yes: str, price: str, need: States, peak: memory.Peak | None
) -> tuple[str, Decision]:
    """The run offloads today and arithmetic does not ask for it: only a measurement can tell."""
    words: tuple[str, ...]
    told = gib(need.total) if need.complete else "these shards"
    bound = (peak.total if peak else 0) or (s.memory.bound if s.memory else 0)
    if peak is None or not bound:
        limit = (
            f"{memory.SHORT:.0%} of {gib(bound)}"
            if bound
            else f"{memory.SHORT:.0%} of the GPU's memory (Shardguide's line)"
        )
        words = (
            f"You offload now, and arithmetic does not decide: the shards ({said(need)}) "
            f"{'are not over the GPU' if bound else 'are known, the memory of the GPU is not'}, "
            "and what the activations take beside them was not measured.",
            f"To close it, measure the peak as you run now (snippet 'measure'): where peak + {told} stays below {limit}, "
            "take offload out.",
            price,
        )
        no = Alternative("no", "It would spare these copies; whether the GPU then holds the peak is open.")
        decision = _on(s, api, kind, f"{yes} stays, open until measured", words, no, need, True)
        return kind, decision
    if peak.ooms or peak.peak + need.total > memory.SHORT * bound:
        words = (
            f"Closed by your measurement: with offload the {peak.words(s)}; the shards ({said(need)}) on the GPU as well "
            f"would pass {memory.SHORT:.0%} of {gib(bound)} (Shardguide's line).",
            price,
        )
        no = Alternative("no", "The measured peak leaves no room for the shards on the GPU.")
        return kind, _on(s, api, kind, f"{yes} stays", words, no, need, False)
    words = (
        f"With offload the {peak.words(s)}; with the shards ({said(need)}) on the GPU as well the sum stays below "
        f"{memory.SHORT:.0%} of {gib(bound)} (Shardguide's line). Measure again without it.",
    )
    return "", Decision("cpu_offload", "no", words, (Alternative(yes, price),), SOURCES[api], open=True)


def _on_host(s: Situation, need: States) -> list[str]:
    """What offload asks of the host; nothing where that is not known."""
    if not need.total:
        return []
    node = said(need._replace(total=need.total * s.per_node))
    return [f"The host of one node holds {node} of shards ({s.per_node} ranks)."]


def _on(
    s: Situation, api: str, kind: str, choice: str, because: tuple[str, ...], no: Alternative, need: States, open_: bool
) -> Decision:
    """A decision for offload, with what it asks of the host, of pinning and of the process group."""
    reasons = [*because, *_on_host(s, need)]
    others = [no]
    sources = list(SOURCES[api])
    if api == "fsdp2":
        sources += ["offload2.pin_memory", "offload2.pin_memory.off", "offload2.params_on_cpu", "backend.nccl_devices"]
        if kind == "pageable":
            reasons.append(
                "pin_memory=False stays as you have it: pinned memory is lost to other processes of the host."
            )
            others.append(
                Alternative(
                    "pin_memory=True", "Faster copies that overlap with computation, where the host has the memory."
                )
            )
        else:
            others.append(
                Alternative("pin_memory=False", "Slower copies without overlap; for a host that is short of memory.")
            )
        reasons.append("The process group must serve CPU tensors too: clipping reduces the norm of CPU gradients.")
    else:
        reasons.append("FSDP1 pins what it offloads, and its own clip_grad_norm_ reduces the norm on the GPU.")
    return Decision("cpu_offload", choice, tuple(reasons), tuple(others), tuple(sources), open=open_)
