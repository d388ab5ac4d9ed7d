"""Checks ``hooks`` and ``joinable``: is each collective of an iteration shadowed, and is what goes into Join a Joinable."""

from __future__ import annotations

from shardguide.guidance.hints import NamedTuple
from shardguide.guidance.record import Check, Release
from shardguide.installed.verify import claims
from shardguide.knowledge import api

from .loop import Loop

DDP = "torch.nn.parallel.DistributedDataParallel"
ZERO = "torch.distributed.optim.ZeroRedundancyOptimizer"
FSDP = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.FSDPModule",
    "torch.distributed._composable.fsdp.FSDP",
)
JOINABLE = "torch.distributed.algorithms.Joinable"


class Shadowed(NamedTuple):
    """One collective of an iteration, and what stands for it on a rank that has joined."""

    joinable: str
    when: str  # "forward", "backward" or "step"
    collective: str
    shadowed_by: str
    result: str  # "passed": a statement found in PyTorch's code says so; "failed": nothing shadows it; "unknown"
    claim: str  # that statement; "" for none


# In the order in which an iteration makes them, read in nn/parallel/distributed.py and optim/zero_redundancy_optimizer.py.
_ITERATION = {
    "ddp": (
        (
            "forward",
            "all-reduce of one element for Join itself, by the first joinable",
            "Join's count of ranks left",
            "join.notify.what",
        ),
        ("forward", "broadcast of the buffers, where there are any to synchronise", "main_hook", "join.ddp.hook"),
        ("forward", "all-reduce of one element: are gradients synchronised this time", "main_hook", "join.ddp.hook"),
        (
            "backward",
            "all-reduce of each bucket of gradients",
            "main_hook, with zeros, in the reducer's order",
            "join.ddp.zeros",
        ),
        (
            "backward",
            "all-reduce of the map of used parameters, with find_unused_parameters",
            "main_hook",
            "join.ddp.hook",
        ),
    ),
    "zero": (
        ("step", "broadcast of each rank's updated parameters", "main_hook, which makes the step", "join.zero.hook"),
    ),
}
_NAMES = {"ddp": DDP, "zero": ZERO}


def iteration(loop: Loop, release: Release) -> list[Shadowed]:
    """Every collective of one iteration with what shadows it; none where no Join is used."""
    if loop.fsdp or loop.even:
        return []
    wanted = [(part, one) for part, all_ in _ITERATION.items() if part in loop.parts for one in all_]
    found = claims(dict.fromkeys(one[3] for _, one in wanted), release)
    rows = [
        Shadowed(_NAMES[part], *one[:3], "passed" if found[one[3]].status in ("found", "index") else "unknown", one[3])
        for part, one in wanted
    ]
    if loop.throws and rows:
        first = rows[0].joinable
        what = "a second all-reduce of one element for Join: has a rank run out"
        rows.insert(
            1,
            Shadowed(
                first, rows[0].when, what, "Join, which then raises on every rank", rows[0].result, "join.throw.cost"
            ),
        )
    if "own" in loop.parts:
        rows.append(
            Shadowed(
                "your own class",
                "",
                "its collectives",
                "its main_hook: to be compared one by one, and in order",
                "unknown",
                "",
            )
        )
    if loop.collectives == "yes":
        by = "nothing: all ranks stop before it (throw_on_early_termination=True)"
        rows.append(Shadowed("none", "", "the other collectives of the loop", by, "passed", "join.throw.when"))
    return rows


def hooks(loop: Loop, rows: list[Shadowed]) -> Check:
    """Check ``hooks``: the collectives of an iteration against main_hook, one by one."""
    if loop.fsdp:
        return Check("hooks", "passed", "No Join is used, so there is nothing to shadow.")
    if loop.even:
        return Check("hooks", "passed", "Nothing is shadowed: all ranks make the same iterations.")
    said = [row for row in rows if row.result == "passed" and row.joinable != "none"]
    parts = []
    if said:
        names = dict.fromkeys(row.joinable.rpartition(".")[2] for row in said)
        parts.append(
            f"{len(said)} collectives of an iteration of {' and '.join(names)}: shadowed, by statements found in their code"
        )
    open_ = [row for row in rows if row.result == "unknown" and row.claim]
    if open_:
        parts.append(f"not confirmed for this release: {', '.join(row.collective for row in open_)}")
    if "own" in loop.parts:
        parts.append(
            "your own class was not read: its main_hook must make the collectives of one iteration, one by one, in order, on the same "
            "group, with the same shapes and dtypes"
        )
    if loop.collectives == "yes":
        parts.append("other collectives: shadowed by nothing, so every rank is made to stop")
    return Check("hooks", "unknown" if open_ or "own" in loop.parts else "passed", f"{'; '.join(parts)}.")


def joinable(loop: Loop) -> Check:
    """Check ``joinable``: the base classes in the API of the release, of what goes into Join and of FSDP, which must not."""
    if not loop.release:
        return Check("joinable", "unknown", "The release is not known.")
    parts: list[str] = []
    wrong: list[str] = []
    for part, name in (("ddp", DDP), ("zero", ZERO)):
        if part in loop.parts and not loop.fsdp:
            is_one = _is_joinable(name, loop.release)
            (parts if is_one else wrong).append(
                f"{name.rpartition('.')[2]} {'derives' if is_one else 'does not derive'} from Joinable"
            )
    if loop.fsdp:
        for name in FSDP:
            if api.exists(name, loop.release):
                is_one = _is_joinable(name, loop.release)
                (wrong if is_one else parts).append(
                    f"{name} {'derives' if is_one else 'does not derive'} from Joinable"
                )
    if wrong:
        return Check("joinable", "failed", f"{'; '.join(wrong + parts)} (API of PyTorch {loop.release}).")
    if "own" in loop.parts and not loop.fsdp:
        return Check(
            "joinable",
            "unknown",
            f"{'; '.join([*parts, 'your own class was not read'])} (API of PyTorch {loop.release}).",
        )
    return Check("joinable", "passed", f"{'; '.join(parts)} (API of PyTorch {loop.release}).")


def _is_joinable(name: str, release: str) -> bool:
    found = api.entry(name, release)
    return found is not None and JOINABLE in found.bases


def group(loop: Loop) -> Check | None:
    """Check ``process_group``, where it was said that there are several."""
    if not loop.several_groups or loop.fsdp or loop.even:
        return None
    return Check("process_group", "failed", "The joinables use several process groups: Join raises ValueError.")
