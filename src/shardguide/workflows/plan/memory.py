"""Decisions ``cpu_offload`` and ``activation_checkpointing``: open until measured, unless arithmetic or a measurement closes them."""

from __future__ import annotations

from shardguide.accounting import Group, RankRun
from shardguide.guidance.dtypes import ITEMSIZE
from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Alternative, Check, Decision

from ..numbers import Layout, States, gib, percent
from ..situation import Situation
from .precision import Policy

# A measured peak above this share of the GPU's memory is called short; Shardguide's own line.
SHORT = 0.92


class Peak(NamedTuple):
    """The user's own measurement, of the rank with the highest peak."""

    peak: int  # bytes, torch.cuda.max_memory_allocated or allocated_bytes.all.peak
    total: int  # bytes of that GPU, 0 if the measurement does not say
    rank: int  # -1 where the file states none
    ooms: int
    retries: int  # allocations that succeeded only after the cache was flushed
    where: str  # file and line

    def share(self, s: Situation) -> float:
        """Peak as a share of the GPU's memory; 0 where that is unknown."""
        bound = self.total or (s.memory.bound if s.memory else 0)
        return self.peak / bound if bound else 0.0

    def short(self, s: Situation) -> bool:
        """Whether memory was short: errors, allocations that needed the cache flushed, or a peak near the whole."""
        return bool(self.ooms or self.retries) or self.share(s) > SHORT

    def pressure(self, s: Situation) -> str:
        """Why it was short, in words."""
        parts = [f"{self.ooms} out-of-memory errors"] if self.ooms else []
        parts += [f"{self.retries} allocations that needed the cache flushed"] if self.retries else []
        return ", ".join([*parts, self.words(s)])

    def words(self, s: Situation) -> str:
        """``measured peak 71.30 GiB of 79.10 GiB on rank 3``."""
        total = self.total or (s.memory.bound if s.memory else 0)
        of = f" of {gib(total)}" if total else ""
        on = f" on rank {self.rank}" if self.rank >= 0 else ""
        return f"measured peak {gib(self.peak)}{of}{on} ({self.where})"


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
    if peak is not None and not peak.short(s) and peak.share(s):
        return Decision("cpu_offload", "no", (f"Closed by your measurement: {peak.words(s)}.",), (yes,), tuple(sources))
    reasons_open = [
        "Arithmetic does not force it, and what the activations take has to be measured.",
        "Activation checkpointing comes first when the peak is too high: it costs computation, not copies over the bus.",
    ]
    if peak is not None:
        reasons_open.insert(
            0,
            f"Your measurement is short ({peak.pressure(s)}): turn activation checkpointing on and measure again first.",
        )
    return Decision("cpu_offload", "no, open until measured", tuple(reasons_open), (yes,), tuple(sources), open=True)


def activation_checkpointing(s: Situation, layout: Layout, peak: Peak | None) -> Decision:
    """Checkpointing of each block's activations, or not."""
    blocks = sorted({unit.module_class for unit in s.model.units if unit.role == "block" and unit.module_class})
    what = f"checkpoint_wrapper on each {' and '.join(blocks) or 'repeated layer'}, use_reentrant=False"
    order = "It is applied before fully_shard, so that the recomputation runs inside the module that gathers the parameters."
    sources = ["ac.what", "ac.non_reentrant", "ac.apply", "practice.ac_per_block", "practice.order_ac_compile_fsdp"]
    if peak is not None and peak.short(s):
        reasons = (f"Closed by your measurement: {peak.pressure(s)}.", order)
        none = Alternative("none", "The measured run had too little room.")
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
    s: Situation, layout: Layout, policy: Policy, run: RankRun, groups: tuple[Group, ...], offload: bool
) -> tuple[tuple[str, int], ...]:
    """What a rank holds at once within a step, from the second on, beside the optimizer's step itself.

    Read in PyTorch 2.13, and seen there in a run: reshard_after_forward=False keeps every group's parameters from forward to
    backward (FSDPParamGroup.reshard); foreach_reduce fills its input before the group's unsharded gradients are let go, while
    the next group's all-gather, issued before, is pending (FSDPParamGroup._backward_prefetch).
    """
    kept = 0 if offload else (run.parameter_bytes or 0) + (run.optimizer_bytes or 0)
    shards = "" if offload else "parameter and optimizer shards and "
    out = []
    if layout.strategy == "grad_op":
        whole = sum(group.unsharded_bytes or 0 for group in groups)
        out.append((f"{shards}all unsharded parameters at the end of forward", kept + whole))
    if groups and layout.strategy != "none" and layout.shard > 1:
        trained = all(one.requires_grad for one in s.model.parameters)
        size = ITEMSIZE.get(policy.param or s.main_dtype, 0) if trained else 0
        sizes = [group.parameters for group in groups]
        best, name, parts = 0, "", ""
        for group in groups:
            held = (group.reduce_scatter_bytes or 0) + group.parameters * size
            again = layout.strategy != "grad_op" and bool(group.modules) and sizes.count(group.parameters) > 1
            held += (group.all_gather_bytes or 0) if again else 0
            if held > best:
                words = ["its reduce-scatter's input", *(["its unsharded gradients"] if size else [])]
                best, name = held, group.name
                parts = ", ".join([*words, *(["the next group's all-gather"] if again else [])])
        if best:
            out.append((f"{shards}what {name} needs in backward ({parts})", kept + best))
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
    forced = not cpu and s.memory is not None and need.total > s.memory.bound
    lead = "the ranks of one node hold" if cpu else "with CPU offload the host of one node holds"
    words = f"{lead} {least}{node:,} bytes ({gib(node)}) of shards"
    if forced and s.memory is not None:
        words = f"{least}{need.total:,} bytes ({gib(need.total)}) of shards on the largest rank exceed the GPU's {s.memory.text}; {words}"
    for what, size in moments:
        if s.memory is not None and size > s.memory.bound:
            return Check(
                "memory", "failed", f"Cannot fit: {what} are {size:,} bytes ({gib(size)}), of {s.memory.text}."
            )
    if s.host_memory is None:
        result = "failed" if forced else "unknown"
        start = "Cannot fit on the GPUs: " if forced else ""
        return Check("memory", result, f"{start}{words}, and its memory was not stated (--host-memory).")
    if node > s.host_memory.bound:
        return Check("memory", "failed", f"Cannot fit: {words}, of {s.host_memory.text}.")
    result = "passed" if need.complete else "unknown"
    return Check("memory", result, f"Not ruled out: {words}, of {s.host_memory.text}; measure.")
