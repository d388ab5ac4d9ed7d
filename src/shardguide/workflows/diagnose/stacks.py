"""What the stacks of all ranks show together: who waits in a collective, and who stands elsewhere and is waited for.

A stack is one moment. It proves where a rank stood, not that it would have stayed there; that a rank that stands elsewhere is
what the others wait for is likely, and the more so the fewer such ranks there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.knowledge import diagnosis_store
from shardguide.readers import pyspy
from shardguide.readers.logs.excerpt import excerpt
from shardguide.readers.logs.records import Evidence
from shardguide.readers.pyspy import Process, StackFrame, Thread

from .match import LEVELS, Candidate, Shown
from .stack_rules import is_own, named, own_frame

MOST_RANKS = 16  # that are named one by one
BEFORE, AFTER = 130, 400  # lines around a thread in a log: the other threads of its process
MOST_BETWEEN = 200_000

# What each place means for the others who wait in a collective.
_DIAGNOSES = {
    "loader": "stack_data_loader",
    "saving": "stack_saving",
    "loading": "stack_loading",
    "downloading": "stack_downloading",
    "preparing": "stack_preparing_data",
    "compiling": "stack_compiling",
    "debugger": "stack_debugger",
    "logging": "stack_logging",
    "ended": "stack_rank_ended",
}
_WAITS = ("collective", "setup")
_OPEN = ("own", "backward", "device", "library")  # may wait for the GPU or in a call of C++ themselves
_HIDDEN = ("worker", "launcher")  # no ranks
_POINT_TO_POINT = re.compile(r"_?i?(?:send|recv)\b|batch_isend_irecv")


class Stand(NamedTuple):
    """Where one rank stands."""

    process: Process
    what: str  # one of the rules' words, "own" (the user's code, or a C function it called) or "library"
    call: str  # for a collective, its name
    frame: StackFrame | None  # the innermost line of the user's own code
    thread: Thread
    gil: str  # the name of another thread that holds the GIL; "" for none
    before: str = ""  # the line of the user's own code in the dump before this one; "" for none

    @property
    def rank(self) -> int | None:
        """The rank, where it is known."""
        return self.process.rank

    @property
    def name(self) -> str:
        """For people."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {self.process.pid}" if self.process.pid else "a process"

    @property
    def place(self) -> str:
        """The line of the user's own code."""
        return f"{self.frame.file}:{self.frame.line} in {self.frame.function}" if self.frame else ""


def from_stacks(found: Sequence[Stand]) -> list[Candidate]:
    """The diagnoses that the stacks give, of one job."""
    stands = latest(found)
    waiting = [one for one in stands if one.what in _WAITS]
    others = [one for one in stands if one.what not in _WAITS]
    if len(stands) == 1:
        return _alone(stands[0])
    if waiting and others:
        return _elsewhere(waiting, others, _workers(found))
    if waiting:
        return _all_wait(waiting)
    # DDP waits for its buckets in C++, and a copy from the GPU waits for all that was issued before it.
    perhaps = [one for one in stands if one.what in ("backward", "device")]
    others = [one for one in stands if one not in perhaps]
    if others and len(perhaps) >= len(others):
        return [one._replace(confidence="possible") for one in _elsewhere(perhaps, others, _workers(found))]
    kinds = {one.what for one in stands}
    if len(kinds) == 1 and (name := _DIAGNOSES.get(next(iter(kinds)))):
        return [_candidate(name, "possible", stands, stands)]
    return []


def stood(path: str) -> list[Stand]:
    """Where each process stands whose stack is in a file. Raises UnusableInput for a file that cannot be read."""
    return [stand for process in pyspy.read(path) if (stand := _stand(process)) is not None]


def inside(log: Evidence) -> list[Stand]:
    """The stacks that stand in a log, between its other lines."""
    at = [
        event.line for event in log.events if '"MainThread"' in event.text or " (most recent call first):" in event.text
    ]
    # Only the first and the last of many are kept as events: what lies between them belongs to them where it is not too much.
    spans = [(max(1, one - BEFORE), one + AFTER) for one in at]
    if max(at) - min(at) < MOST_BETWEEN:
        spans = [(max(1, min(at) - BEFORE), max(at) + AFTER)]
    try:
        found = pyspy.from_lines(excerpt(log.file, spans), log.file)
    except UnusableInput:
        return []
    return [stand for process in found if (stand := _stand(process)) is not None]


def latest(found: Iterable[Stand]) -> list[Stand]:
    """Where every rank stands, by its last dump. Launchers, workers of data loaders and processes of other programs are left out."""
    last: dict[tuple[object, ...], Stand] = {}
    for stand in found:
        if stand.what in _HIDDEN:
            continue
        # Without a rank and a number each file is a process of its own, dumped once or several times.
        process = stand.process
        key = ("rank", process.rank) if process.rank is not None else ("pid", process.file, process.pid)
        earlier = last.get(key)
        last[key] = stand._replace(before=earlier.place) if earlier else stand
    stands = list(last.values())
    # A dump of every Python process of a host holds others than the training.
    commands = Counter(_script(one.process) for one in stands if one.what in _WAITS)
    if commands:
        usual = commands.most_common(1)[0][0]
        stands = [one for one in stands if one.what in _WAITS or one.rank is not None or _script(one.process) == usual]
    return sorted(stands, key=lambda one: (one.rank is None, one.rank or 0, one.process.pid))


def _workers(found: Iterable[Stand]) -> list[Shown]:
    """Where the worker processes of data loaders stand in code of the user's own."""
    out = []
    for one in found:
        if one.what == "worker" and one.frame and one.thread.frames[0] == one.frame:
            at = f"{one.frame.function} ({one.frame.file}:{one.frame.line})"
            out.append(Shown(one.process.file, one.thread.line, f"worker process {one.process.pid} stands in {at}"))
    return out[:2]


def _script(process: Process) -> str:
    """The program that a process runs, without the interpreter and its arguments."""
    words = [word for word in process.command.split() if word.endswith(".py")]
    return words[0] if words else process.command[:200]


def _stand(process: Process) -> Stand | None:
    main = process.main
    if main is None or process.crashed:
        return None
    thread = main
    what, call = _where(main)
    if what == "backward":
        # On GPUs the hooks of backward run in the engine's own threads, which have no name.
        hooks = [(one, _where(one)) for one in process.threads if one.frames and one is not main and not one.name]
        for other, inside_ in sorted(hooks, key=lambda each: each[1][0] != "collective")[:1]:
            thread, (what, call) = other, inside_
    holds = next(
        (one.name or "without a name" for one in process.threads if one is not main and "gil" in one.state), ""
    )
    # Of ten thousand ranks only the thread that counts is kept.
    process = process._replace(threads=())
    return Stand(process, what, call, own_frame(main), thread, holds if what in _OPEN else "")


def _where(thread: Thread) -> tuple[str, str]:
    own = False  # a launcher that started the process by fork stands below the user's code
    found = ("", "")
    for number, frame in enumerate(thread.frames):
        function = frame.function.rpartition(".")[2] or frame.function
        file = frame.file.replace("\\", "/")
        own = own or is_own(frame)
        what = named(file, function)
        if what == "worker":
            return what, ""
        if what and not found[0] and not (own and what == "launcher"):
            found = (what, _call(thread.frames[number:]) if what in _WAITS else "")
    if found[0]:
        return found
    first = thread.frames[0] if thread.frames else None
    return ("own" if first is None or is_own(first) else "library"), ""


def _call(frames: Sequence[StackFrame]) -> str:
    """The call that the program made: all_gather_object calls all_gather itself, FSDP2 names what it gathers for."""
    name = frames[0].function.rpartition(".")[2]
    for frame in frames[1:]:
        function = frame.function.rpartition(".")[2]
        if frame.file.endswith("distributed_c10d.py"):
            name = function
        elif "_fsdp_" in frame.file or "fsdp/_" in frame.file:
            if function.startswith(("foreach_", "pre_", "post_", "_pre_", "_post_", "_lazy")):
                return f"{name} for FSDP ({function})"
        elif not frame.file.endswith(("c10d_logger.py", "_contextlib.py")) and is_own(frame):
            break
    return name


def _line(one: Stand) -> Shown:
    frame = one.thread.frames[0] if one.thread.frames else StackFrame("nothing", "", 0)
    at = f"{frame.file}:{frame.line}" if frame.line else frame.file
    own = f", called at {one.frame.file}:{one.frame.line}" if one.frame and one.frame != frame else ""
    what = {"collective": f"waits in {one.call}", "setup": f"waits in {one.call}"}.get(
        one.what, f"stands in {frame.function}"
    )
    held = f"; thread {one.gil} holds the GIL" if one.gil else ""
    if one.before:
        held += "; in the dump before as well" if one.before == one.place else f"; in the dump before at {one.before}"
    return Shown(one.process.file, one.thread.line, f"{one.name} {what} ({at}{own}){held}")


def _candidate(
    name: str,
    level: str,
    ranks: Sequence[Stand],
    shown: Sequence[Stand],
    weight: float = 0.0,
    more: Sequence[Shown] = (),
) -> Candidate:
    diagnosis = diagnosis_store.get(name)
    level = max(level, diagnosis.confidence, key=LEVELS.index)  # no surer than it may be
    numbers = tuple(sorted({one.rank for one in ranks if one.rank is not None}))
    lines = (*(_line(one) for one in shown[:4]), *more)
    place = next((one.place for one in ranks if one.place), "")
    return Candidate(diagnosis, level, numbers, lines, 8 + weight, (lines[0].file, lines[0].line), place, True)


def _alone(one: Stand) -> list[Candidate]:
    """A single stack: it says what it waits for, and nothing about the others."""
    if one.what in _WAITS:
        return [_candidate("rank_waits_in_collective", "possible", [one], [one])]
    name = _DIAGNOSES.get(one.what)
    return [_candidate(name, "possible", [one], [one])] if name else []


def _elsewhere(waiting: list[Stand], others: list[Stand], workers: Sequence[Shown] = ()) -> list[Candidate]:
    """Some wait; who stands elsewhere has not come to that collective, or is past it."""
    few = len(others) <= len(waiting)
    out = []
    by_name: dict[str, list[Stand]] = {}
    for one in others:
        name = "stack_gil" if one.gil else _DIAGNOSES.get(one.what, "stack_rank_elsewhere")
        by_name.setdefault(name, []).append(one)
    for name, ranks in by_name.items():
        sure = few and all(one.what not in ("backward", "device") for one in ranks)
        if any(one.before and one.before != one.place for one in ranks):
            sure = False  # it moves: it is slow, or was only elsewhere at that moment
        # With NCCL a line of the user's own may stand still because it needs a number from the GPU.
        level = "certain" if name == "stack_debugger" else "likely" if sure else "possible"
        weight = 1.0 if name != "stack_rank_elsewhere" else 0.0
        more = workers if name == "stack_data_loader" else ()
        out.append(_candidate(name, level, ranks, [*ranks[:2], *waiting[:2]], weight, more))
    if len(waiting) == 1 and len(others) > 2:
        out.append(_candidate("stack_one_rank_waits", "possible", waiting, [*waiting, *others[:2]], 2.0))
    return out


def _all_wait(waiting: list[Stand]) -> list[Candidate]:
    calls = Counter(one.call for one in waiting)
    places = Counter((one.call, one.place) for one in waiting)
    if len(calls) > 1 and not all(_POINT_TO_POINT.match(call) for call in calls):
        return _apart(waiting, [one.call for one in waiting], "likely" if len(calls) == 2 else "possible")
    if len(places) > 1 and len(calls) == 1 and not _POINT_TO_POINT.match(waiting[0].call):
        return _apart(waiting, [one.place for one in waiting], "possible")
    out = []
    known = {one.rank for one in waiting if one.rank is not None}
    gaps = sorted(set(range(max(known) + 1)) - known) if len(known) == len(waiting) else []
    if gaps and len(gaps) <= len(known):
        missing = Shown(
            waiting[0].process.file,
            waiting[0].thread.line,
            f"no stack of rank {', '.join(map(str, gaps[:MOST_RANKS]))}",
        )
        one = _candidate("stack_rank_not_dumped", "possible", [], waiting[:2], 1.0, [missing])
        out.append(one._replace(ranks=tuple(gaps)))
    out.append(_candidate("stack_all_in_same_collective", "possible", [], waiting[:3]))
    return out


def _apart(waiting: list[Stand], by: list[str], level: str) -> list[Candidate]:
    """Who stands in another collective than most; everybody where there is no majority."""
    (usual, most), *rest = Counter(by).most_common()
    odd = [one for one, value in zip(waiting, by, strict=True) if value != usual]
    if rest and rest[0][1] == most:
        first = [
            next(one for one, value in zip(waiting, by, strict=True) if value == other) for other in dict.fromkeys(by)
        ]
        return [_candidate("stack_different_collectives", level, waiting, first)]
    same = [one for one, value in zip(waiting, by, strict=True) if value == usual]
    return [_candidate("stack_different_collectives", level, odd, [*odd[:2], *same[:2]])]
