"""Out of memory: who asked, who holds the rest, and which of the causes the numbers allow.

The code that asks last is not always what fills the GPU. So a cause is named from the stack only as far as the stack goes
(``possible`` where it only says who asked), and from the numbers where these decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Fact
from shardguide.knowledge import diagnosis_store
from shardguide.readers.allocations import TITLES, Asked, asked
from shardguide.readers.logs.records import Event, Evidence
from shardguide.readers.oom import MARK, Oom, Size, parse, show

from .alignment import own_frame
from .match import LEVELS, Candidate, Shown

# Shardguide's own lines: no documentation draws one.
FRAGMENTED = 0.10  # of what PyTorch holds lies idle, and would have been enough
SOME = 0.03  # the same, from where on it is worth a mention
ELSEWHERE = 0.10  # of the GPU is held by other processes, or outside PyTorch's allocator
FULL = 0.80  # of the GPU is held by this process's tensors
POOLS = 0.20  # of the tensors lie in private pools
LARGE = 0.10  # of the GPU is asked for at once
MOST_OF = 0.5  # the same, from where on the one tensor is the cause
NEAR = 150  # lines before a message in which the frames of its traceback may stand
MOST = 4096

# What a category of readers.allocations is as a diagnosis, and how far the stack alone carries.
_BY_STACK = {
    "broadcast_full": ("oom_broadcast_full_tensor", "likely"),
    "state_dict": ("oom_full_state_dict_on_gpu", "likely"),
    "full_tensor": ("oom_full_tensor", "likely"),
    "summon": ("oom_summon_full_params", "likely"),
    "optimizer_state": ("oom_optimizer_state", "likely"),
    "place": ("oom_model_placement", "likely"),
    "load": ("oom_checkpoint_load", "likely"),
    "all_gather": ("oom_all_gather_buffers", "possible"),
    "reduce_scatter": ("oom_reduce_scatter_buffers", "possible"),
    "clip": ("oom_grad_clip", "possible"),
    "loss": ("oom_logits_loss", "possible"),
    "recompute": ("oom_activations", "possible"),
    "forward": ("oom_activations", "possible"),
    "backward": ("oom_backward", "possible"),
    "generate": ("oom_generate", "possible"),
}
# What this module decides; words alone never do.
IDS = frozenset(
    {name for name, _ in _BY_STACK.values()}
    | {"fragmentation", "oom_optimizer_foreach", "oom_other_process", "oom_ranks_share_gpu", "oom_outside_allocator"}
    | {
        "oom_memory_fraction",
        "oom_one_large_tensor",
        "oom_cuda_graph_pools",
        "oom_despite_free_memory",
        "oom_capacity",
    }
    | {"host_oom_full_load_per_rank", "allocator_retries"}
)


class Case(NamedTuple):
    """One allocation that failed."""

    oom: Oom
    asked: Asked
    rank: int | None
    file: str
    line: int
    text: str
    place: str  # the user's line


class Cause(NamedTuple):
    """A diagnosis that a case speaks for."""

    id: str
    confidence: str
    why: str  # what in the numbers says so, "" where the line itself does
    weight: float


def from_logs(logs: Sequence[Evidence]) -> tuple[list[Candidate], list[Fact]]:
    """The causes of every out-of-memory message in the logs."""
    cases = [case for log in logs for case in cases_of(log)][:MOST]
    found = candidates(cases)
    found += _host(logs)
    return found, facts(cases)


def cases_of(log: Evidence) -> list[Case]:
    """The messages of one log, each with the stack that led there."""
    out: list[Case] = []
    taken: set[int] = set()
    for raised in log.raised:
        if MARK not in raised.message[:400]:
            continue
        oom = parse(raised.message)
        if oom is None:
            continue
        taken.add(raised.line)
        frames = [(one.file, one.line, one.function) for one in reversed(raised.frames)]
        text = f"{raised.kind}: {raised.message}".partition("\n")[0]
        out.append(
            Case(oom, asked(frames), raised.rank, raised.file, raised.line, text[:1000], own_frame(tuple(frames)))
        )
    for event in log.events:
        if event.line in taken or MARK not in event.text or "Tried to allocate" not in event.text:
            continue
        oom = parse(event.text)
        if oom is None:
            continue
        taken.add(event.line)
        if "Failed to clone() tensor" in event.text:  # FSDP1's state-dict hook catches the error and warns
            who = Asked("state_dict", 0, "torch/distributed/fsdp/_state_dict_utils.py")
        else:
            who = asked(_before(log, event))
        out.append(Case(oom, who, event.rank, event.file, event.line, event.text, ""))
    return out


_FILE_LINE = re.compile(r'\s*File "([^"]{1,400})", line (\d{1,7}), in (.{1,200})')


def _before(log: Evidence, message: Event) -> list[tuple[str, int, str]]:
    """Frames that stand in front of a message whose traceback lacks its head, innermost first."""
    found = []
    for event in log.events:
        if 0 < message.line - event.line <= NEAR and (event.rank, event.local) == (message.rank, message.local):
            frame = _FILE_LINE.match(event.text)
            if frame:
                found.append((event.line, (frame[1], int(frame[2]), frame[3].strip())))
    return [frame for _, frame in sorted(set(found), reverse=True)]


def candidates(cases: Sequence[Case]) -> list[Candidate]:
    """The causes over all ranks, each once, with its ranks and lines."""
    by_id: dict[str, list[tuple[Cause, Case]]] = {}
    for case in cases:
        for cause in causes(case):
            by_id.setdefault(cause.id, []).append((cause, case))
    shared = _shared(cases)
    if shared:
        by_id["oom_ranks_share_gpu"] = shared
    out = []
    for name, found in by_id.items():
        found.sort(key=lambda one: (LEVELS.index(one[0].confidence), one[1].file, one[1].line))
        shown: list[Shown] = []
        for cause, case in found[:3]:
            shown.append(Shown(case.file, case.line, case.text))
            if cause.why:
                shown.append(Shown(case.file, case.line, cause.why))
        best, first = found[0]
        ranks = tuple(sorted({case.rank for _, case in found if case.rank is not None}))
        out.append(
            Candidate(diagnosis_store.get(name), best.confidence, ranks, tuple(dict.fromkeys(shown)), best.weight,
                      (first.file, first.line), first.place)
        )  # fmt: skip
    return out


def causes(case: Case) -> list[Cause]:
    """Everything that one case speaks for."""
    oom, found = case.oom, []
    requested = oom.requested.bytes
    if oom.capacity is not None and requested >= MOST_OF * oom.capacity.bytes:
        why = f"asked for {oom.requested.text} at once, and the GPU has {oom.capacity.text} in all"
        sure = "certain" if requested > oom.capacity.bytes else "likely"
        stack = _by_stack(case)
        if any(one.confidence == "likely" for one in stack):
            sure = "possible"  # the stack says what the tensor is for
        return [Cause("oom_one_large_tensor", sure, why, 3), *stack]
    found += _fraction(oom)
    found += _elsewhere(oom)
    found += _fragmentation(oom)
    if oom.pools is not None and oom.allocated is not None and oom.pools.bytes >= POOLS * oom.allocated.bytes > 0:
        why = (
            f"{oom.pools.text} of {oom.allocated.text} lie in private pools ({_share(oom.pools, oom.allocated.bytes)})"
        )
        found.append(Cause("oom_cuda_graph_pools", "likely", why, 3))
    found += _by_stack(case)
    if not found and oom.free is not None and oom.free.bytes >= requested:
        why = f"asked for {oom.requested.text} while the driver still saw {oom.free.text} free"
        found.append(Cause("oom_despite_free_memory", "possible", why, 2))
    found.append(_capacity(oom))
    return found


def _fraction(oom: Oom) -> list[Cause]:
    if oom.allowed is None or oom.reserved is None or oom.backend == "MPS":
        return []
    room = oom.free is not None and oom.free.bytes >= oom.requested.bytes
    if room and oom.reserved + oom.requested.bytes > oom.allowed.bytes:
        why = f"{show(oom.reserved)} held + {oom.requested.text} asked for > {oom.allowed.text} allowed, with {_text(oom.free)} free"
        return [Cause("oom_memory_fraction", "certain", why, 8)]
    return []


def _elsewhere(oom: Oom) -> list[Cause]:
    """Memory of the GPU that PyTorch's allocator in this process does not hold."""
    if oom.capacity is None or oom.free is None or oom.reserved is None:
        return []
    capacity, found = oom.capacity.bytes, []
    own = oom.process.bytes if oom.process is not None else None
    named = list(oom.others)
    if own is None:
        # In a container the driver cannot tell which process is this one: the smallest that can hold what PyTorch reserved.
        able = sorted((one for one in named if one[1].bytes >= 0.98 * oom.reserved), key=lambda one: one[1].bytes)
        if able:
            named.remove(able[0])
            own = able[0][1].bytes
    others = sum(one[1].bytes for one in named)
    hidden = capacity - oom.free.bytes - others - own if own is not None else 0
    if (
        others + max(0, hidden) >= ELSEWHERE * capacity
        and others + max(0, hidden) + oom.free.bytes >= oom.requested.bytes
    ):
        who = [f"process {pid} {size.text}" for pid, size in named[:4]]
        if hidden >= ELSEWHERE * capacity:
            who.append(f"{show(hidden)} by what is not listed")
        why = f"held on this GPU by others: {', '.join(who)}"
        found.append(Cause("oom_other_process", "likely", why, 7))
    if own is None and capacity - oom.free.bytes - oom.reserved >= ELSEWHERE * capacity:
        left = capacity - oom.free.bytes - oom.reserved
        why = f"{oom.capacity.text} - {oom.free.text} free - {show(oom.reserved)} held by PyTorch = {show(left)} held by something else"
        # A container hides the other processes: theirs, or this process's own outside PyTorch. Half a GPU is no buffers of NCCL.
        if left >= MOST_OF * capacity:
            found.append(Cause("oom_other_process", "likely", why, 7))
        else:
            found.append(Cause("oom_other_process", "possible", why, 3))
            found.append(Cause("oom_outside_allocator", "possible", why, 2))
    elif own is not None and own - oom.reserved >= max(ELSEWHERE * capacity, oom.requested.bytes):
        why = f"{show(own)} in this process - {show(oom.reserved)} held by PyTorch = {show(own - oom.reserved)} outside its allocator"
        found.append(Cause("oom_outside_allocator", "likely", why, 6))
    return found


def _fragmentation(oom: Oom) -> list[Cause]:
    idle, reserved = oom.unallocated, oom.reserved
    if idle is None or not reserved or idle.bytes < oom.requested.bytes:
        return []  # even in one piece it would not have been enough
    share = idle.bytes / reserved
    if share < SOME:
        return []
    why = (
        f"{idle.text} lie idle in PyTorch's allocator, {_share(idle, reserved)} of the {show(reserved)} it holds, "
        f"and {oom.requested.text} were asked for: enough, but not in one piece"
    )
    return [Cause("fragmentation", "likely" if share >= FRAGMENTED else "possible", why, 5)]


def _by_stack(case: Case) -> list[Cause]:
    category, requested, capacity = case.asked.category, case.oom.requested.bytes, case.oom.capacity
    why = f"asked for by {TITLES[category]}: {case.asked.place}" if case.asked.place else ""
    if category == "optimizer_step":
        if "_multi_tensor_" in case.asked.place or "_foreach_" in case.text:
            return [Cause("oom_optimizer_foreach", "likely", why, 4)]
        return []
    known = _BY_STACK.get(category)
    if known is None:
        return []
    name, confidence = known
    large = capacity is not None and requested >= LARGE * capacity.bytes
    if category in ("all_gather", "reduce_scatter", "loss") and large:
        confidence = "likely"
        why += f"; {case.oom.requested.text} in one piece"
    return [Cause(name, confidence, why, 4)]


def _capacity(oom: Oom) -> Cause:
    if oom.capacity is not None and oom.allocated is not None and oom.allocated.bytes >= FULL * oom.capacity.bytes:
        why = f"tensors of this process hold {oom.allocated.text} of {oom.capacity.text} ({_share(oom.allocated, oom.capacity.bytes)})"
        return Cause("oom_capacity", "likely", why, 1)
    return Cause("oom_capacity", "possible", "", 0.5)


def _shared(cases: Sequence[Case]) -> list[tuple[Cause, Case]]:
    """Several ranks of one log that name the same GPU, each beside another process that holds much of it."""
    by_device: dict[int, dict[int, Case]] = {}
    for case in cases:
        crowded = any(one.id == "oom_other_process" for one in causes(case)) and case.oom.others
        if case.rank is not None and case.oom.device is not None and crowded:
            by_device.setdefault(case.oom.device, {}).setdefault(case.rank, case)
    for device, of in sorted(by_device.items()):
        if len(of) > 1 and len({case.oom.capacity for case in of.values()}) == 1:
            names = ", ".join(str(rank) for rank in sorted(of)[:8])
            cause = Cause(
                "oom_ranks_share_gpu",
                "likely" if device == 0 else "possible",
                f"ranks {names} name GPU {device}, and each sees another process on it",
                8,
            )
            return [(cause, case) for _, case in sorted(of.items())]
    return []


def _host(logs: Sequence[Evidence]) -> list[Candidate]:
    """A rank killed while it was loading weights: every rank loads them all into host memory."""
    killed = [row for log in logs for row in log.failed if row.exitcode == -9]
    signs = [
        event
        for log in logs
        for event in log.events
        if "exitcode: -9)" in event.text or "Signal 9 (SIGKILL)" in event.text
    ]
    if not killed and not signs:
        return []
    shown = [Shown(one.file, one.line, one.text) for one in signs[:2]]
    shown += [
        Shown(row.file, row.line, f"rank {row.rank} (local_rank: {row.local}): exitcode {row.exitcode}")
        for row in killed[:2]
    ]
    for log in logs:
        loading = [
            event for event in log.events if event.text.startswith(("Loading checkpoint shards", "Loading weights"))
        ]
        percents = [(event, int(found[1])) for event in loading if (found := re.search(r"\b(\d{1,3})%", event.text))]
        # The last bar of the file, per rank: loading that came to its end is not what was killed.
        if percents and percents[-1][1] < 100 and all(percent < 100 for _, percent in percents[-2:]):
            event = percents[-1][0]
            diagnosis = diagnosis_store.get("host_oom_full_load_per_rank")
            ranks = tuple(sorted({row.rank for row in killed}))
            lines = (Shown(event.file, event.line, event.text), *shown)
            return [Candidate(diagnosis, "likely", ranks, lines, 5, (event.file, event.line))]
    return []


def facts(cases: Iterable[Case]) -> list[Fact]:
    """The numbers of the first messages, as they are printed."""
    out: list[Fact] = []
    for number, case in enumerate(list(cases)[:8]):
        where = f"{case.file}:{case.line}"
        name = f"oom.{number}" if case.rank is None else f"oom.{number}.rank{case.rank}"
        for field in ("requested", "capacity", "free", "allowed", "process", "allocated", "pools", "unallocated"):
            size: Size | None = getattr(case.oom, field)
            if size is not None:
                value, unit = size.text.split(" ")
                out.append(Fact(f"{name}.{field}", value, unit, f"as printed, {where}"))
        idle, reserved = case.oom.unallocated, case.oom.reserved
        if idle is not None and reserved:
            share = f"{idle.text} / {show(reserved)}"
            out.append(
                Fact(f"{name}.unallocated_share", f"{100 * idle.bytes / reserved:.1f}", "%", f"{share}, {where}")
            )
    return out


def _share(part: Size, whole: int) -> str:
    return f"{100 * part.bytes / whole:.0f} %"


def _text(size: Size | None) -> str:
    return size.text if size is not None else ""
