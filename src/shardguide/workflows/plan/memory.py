"""Decisions ``cpu_offload`` and ``activation_checkpointing``: open until measured, unless arithmetic or a measurement closes them."""

from __future__ import annotations

from shardguide.accounting import Group, RankRun
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Check, Decision

from ..numbers import Layout, States, gib, percent
from ..situation import Situation

# A measured peak above this share of the GPU's memory is called short; Shardguide's own line.
SHORT = 0.92


class Peak(NamedTuple):
    """The user's own measurement, of the rank with the highest peak."""

    peak: int  # bytes, torch.cuda.max_memory_allocated or allocated_bytes.all.peak
    total: int  # bytes of that GPU, 0 if the measurement does not say
    rank: int
    ooms: int
    retries: int  # allocations that succeeded only after the cache was flushed
    where: str  # file and line

    def share(self, s: Situation) -> float:
        """Peak as a share of the GPU's memory; 0 where that is unknown."""
        bound = self.total or (s.memory.bound if s.memory else 0)
        return self.peak / bound if bound else 0.0

    def words(self, s: Situation) -> str:
        """``measured peak 71.30 GiB of 79.10 GiB on rank 3``."""
        total = self.total or (s.memory.bound if s.memory else 0)
        return (
            f"measured peak {gib(self.peak)}{f' of {gib(total)}' if total else ''} on rank {self.rank} ({self.where})"
        )


def offloads(s: Situation, layout: Layout, need: States) -> bool:
    """Whether the plan offloads: it was asked for, or the arithmetic leaves nothing else."""
    if layout.strategy == "none" or s.offload == "no" or s.device == "cpu":
        return False
    return s.offload == "yes" or (
        s.strategy in ("auto", "full") and s.memory is not None and need.total > s.memory.bound
    )


def cpu_offload(s: Situation, layout: Layout, need: States, peak: Peak | None) -> Decision:
    """CPUOffloadPolicy or not."""
    sources = ["offload2.what", "offload1.what", "offload1.default"]
    costs = (
        "It moves parameters, gradients and optimizer state to the host: each step copies the shards to the GPU and the gradients "
        "back, and the optimizer runs on the CPU."
    )
    yes = Alternative("CPUOffloadPolicy()" if s.has_fsdp2() else "CPUOffload(offload_params=True)", costs)
    if layout.strategy == "none":
        why = "CPU offload is a policy of fully_shard; nothing is sharded here."
        return Decision("cpu_offload", "no", (why,), (yes,), ("offload2.what", "offload1.what", "offload1.default"))
    if s.device == "cpu":
        return Decision(
            "cpu_offload",
            "no",
            ("The device is the CPU already: the shards lie in host memory.",),
            (yes,),
            tuple(sources),
        )
    if (
        need.complete
        and not offloads(s, layout, need)
        and s.offload != "no"
        and s.memory
        and need.total > s.memory.bound
    ):
        why = f"As asked for it cannot fit ({gib(need.total)} on the largest rank, of {s.memory.text}); see the decision on sharding."
        return Decision("cpu_offload", "no", (why,), (yes,), tuple(sources))
    if offloads(s, layout, need):
        pin = "pinned host memory cannot be paged or used by others; pin_memory=False where the host is short of it"
        reasons = [
            "You asked for it." if s.offload == "yes" else
            f"The states alone exceed the GPU: {gib(need.total)} on the largest rank, of {s.memory.text if s.memory else '?'}.",
            costs,
            "The process group must serve CPU tensors too, for gradient clipping: cpu:gloo beside the GPU's backend.",
            f"The host of one node has to hold the shards of its {s.per_node} ranks (check memory); {pin}.",
        ]  # fmt: skip
        sources += [
            "offload2.transfers",
            "offload2.optimizer_cpu",
            "offload2.pin_memory",
            "offload2.pin_memory.off",
            "backend.nccl_devices",
            "practice.cpu_backend",
        ]
        return Decision(
            "cpu_offload",
            "CPUOffloadPolicy(pin_memory=True)" if s.has_fsdp2() else "CPUOffload(offload_params=True)",
            tuple(reasons),
            (Alternative("no", "More GPUs, or a smaller optimizer state, would spare the copies."),),
            tuple(sources),
        )
    if s.offload == "no":
        return Decision("cpu_offload", "no", ("You ruled it out.",), (yes,), tuple(sources))
    if peak is not None and not peak.ooms and 0 < peak.share(s) <= SHORT:
        return Decision("cpu_offload", "no", (f"Closed by your measurement: {peak.words(s)}.",), (yes,), tuple(sources))
    reasons_open = [
        "Arithmetic does not force it, and what the activations take has to be measured.",
        "Activation checkpointing comes first when the peak is too high: it costs computation, not copies over the bus.",
    ]
    if peak is not None:
        reasons_open.insert(
            0,
            f"{peak.words(s)[:1].upper()}{peak.words(s)[1:]}: short. Turn activation checkpointing on and measure again first.",
        )
    return Decision("cpu_offload", "no, open until measured", tuple(reasons_open), (yes,), tuple(sources), open=True)


def activation_checkpointing(s: Situation, layout: Layout, peak: Peak | None) -> Decision:
    """Checkpointing of each block's activations, or not."""
    blocks = sorted({unit.module_class for unit in s.model.units if unit.role == "block" and unit.module_class})
    what = f"checkpoint_wrapper on each {' and '.join(blocks) or 'repeated layer'}, use_reentrant=False"
    order = "It is applied before fully_shard, so that the recomputation runs inside the module that gathers the parameters."
    sources = ["ac.what", "ac.non_reentrant", "ac.apply", "practice.ac_per_block", "practice.order_ac_compile_fsdp"]
    if peak is not None and peak.ooms:
        reasons = (f"Closed by your measurement: {peak.ooms} out-of-memory errors; {peak.words(s)}.", order)
        return Decision("activation_checkpointing", what, reasons, (), tuple(sources))
    if peak is not None and peak.share(s) > SHORT:
        reasons = (f"Closed by your measurement: {peak.words(s)}, {percent(peak.share(s))}.", order)
        none = Alternative("none", "The measured peak leaves too little room.")
        return Decision("activation_checkpointing", what, reasons, (none,), tuple(sources))
    if peak is not None and peak.share(s):
        closed = (f"Closed by your measurement: {peak.words(s)}, {percent(peak.share(s))}.",)
        more = Alternative(
            what,
            "It would recompute every block's forward to save memory that your measurement does not show as short.",
        )
        return Decision("activation_checkpointing", "none", closed, (more,), tuple(sources))
    return Decision(
        "activation_checkpointing",
        "none at first, open until measured",
        (
            "Activations depend on batch, sequence length and kernels: they are measured, not estimated. Run the snippet 'measure'.",
            order,
        ),
        (
            Alternative(
                what, "Recomputes every block's forward in backward; take it when the measured peak is too high."
            ),
        ),
        tuple(sources),
        open=True,
    )


def check(
    s: Situation, layout: Layout, need: States, offload: bool, moments: tuple[tuple[str, int], ...] = (), node: int = 0
) -> Check:
    """Check ``memory``: exact bytes against the stated memory. It can fail; that all fits is never claimed.

    ``moments`` are further lower bounds of a GPU's memory within a step (words, bytes); ``node`` the bytes that the ranks of
    one node hold together, where that is known exactly.
    """
    least = "" if need.complete else "at least "
    if not need.total:
        return Check("memory", "unknown", "The bytes cannot be worked out before the parameter dtype is known.")
    if offload or s.device == "cpu":
        return _check_host(s, need, least, node or need.total * s.per_node, moments if offload else ())
    if s.memory is None:
        return Check("memory", "unknown", "The memory of a GPU is not known.")
    words = f"parameter, gradient and optimizer shards of the largest rank are {least}{need.total:,} bytes ({gib(need.total)})"
    if need.total > s.memory.bound:
        return Check("memory", "failed", f"Cannot fit: {words}, of {s.memory.text}.")
    for what, size in moments:
        if size > s.memory.bound:
            return Check(
                "memory", "failed", f"Cannot fit: {what} are {size:,} bytes ({gib(size)}), of {s.memory.text}."
            )
    if not need.complete:
        return Check("memory", "unknown", f"Not ruled out, but not all of it is known: {words}, of {s.memory.text}.")
    top = "".join(
        f" At another moment {what} are {size:,} bytes ({gib(size)})." for what, size in moments if size > need.total
    )
    return Check(
        "memory", "passed", f"Not ruled out: {words}, of {s.memory.text}.{top} Activations come on top; measure."
    )


def moments(
    s: Situation, layout: Layout, run: RankRun, groups: tuple[Group, ...], offload: bool
) -> tuple[tuple[str, int], ...]:
    """What a rank holds at once within a step, from the second on, beside the optimizer's step itself.

    Read in PyTorch 2.13: reshard_after_forward=False keeps every group's parameters from forward to backward
    (FSDPParamGroup.reshard), and foreach_reduce fills its input before the group's unsharded gradients are let go.
    """
    kept = 0 if offload else (run.parameter_bytes or 0) + (run.optimizer_bytes or 0)
    shards = "" if offload else "parameter and optimizer shards and "
    out = []
    if layout.strategy == "grad_op":
        whole = sum(group.unsharded_bytes or 0 for group in groups)
        out.append((f"{shards}all unsharded parameters at the end of forward", kept + whole))
    if groups and layout.strategy != "none":
        largest = max(groups, key=lambda group: group.reduce_scatter_bytes or 0)
        if largest.reduce_scatter_bytes and layout.shard > 1:
            what = f"{shards}the reduce-scatter's input of the largest group ({largest.name})"
            out.append((what, kept + largest.reduce_scatter_bytes))
    return tuple(out)


def on_one_node(s: Situation, runs: tuple[RankRun, ...]) -> int:
    """Bytes of states that the ranks of the first node hold together; 0 if a part is not known."""
    total = 0
    for run in runs:
        ranks = max(0, min(run.last_rank, s.per_node - 1) - run.first_rank + 1)
        parts = (run.parameter_bytes, run.gradient_bytes, run.optimizer_bytes)
        if ranks and None in parts:
            return 0
        total += ranks * sum(part or 0 for part in parts)
    return total


def _check_host(s: Situation, need: States, least: str, node: int, moments: tuple[tuple[str, int], ...]) -> Check:
    cpu = s.device == "cpu"
    gpu = (
        ""
        if cpu or s.memory is None or need.total <= s.memory.bound
        else f"They cannot fit on the GPU ({s.memory.text}). "
    )
    lead = "The ranks of one node hold" if cpu else f"{gpu}With CPU offload one node's host holds"
    words = f"{lead} {least}{node:,} bytes ({gib(node)}) of shards"
    for what, size in moments:
        if s.memory is not None and size > s.memory.bound:
            return Check(
                "memory", "failed", f"Cannot fit: {what} are {size:,} bytes ({gib(size)}), of {s.memory.text}."
            )
    if s.host_memory is None:
        return Check("memory", "failed" if gpu else "unknown", f"{words}; its memory was not stated (--host-memory).")
    if node > s.host_memory.bound:
        return Check("memory", "failed", f"Cannot fit: {words[:1].lower()}{words[1:]}, of {s.host_memory.text}.")
    result = "passed" if need.complete else "unknown"
    return Check("memory", result, f"Not ruled out: {words[:1].lower()}{words[1:]}, of {s.host_memory.text}; measure.")
