"""Reading as a map over files: each file is reduced to a small summary by itself, and only summaries are put together.

What runs the map is any ``concurrent.futures.Executor`` (processes, threads, Dask's or Ray's), or nothing, which is a plain loop.
The order of the files decides what comes out, never the order in which they were done.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.knowledge import diagnosis_store
from shardguide.readers.flight_recorder import Dump
from shardguide.readers.logs.records import Evidence

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

FILES = 32  # of a task at most: a small file costs less than handing it over
TASKS = 256  # into which the files are divided at least, so that no worker is left without
ENGINES = ("dask", "distributed", "ray")  # whose errors are not ours
WAITING = 64  # tasks handed over and not yet taken back: what they give must not pile up

MUCH = 1 << 24  # bytes from which the automaton that takes longer to build pays for itself
_automata: dict[bool, Any] = {}  # made once in every process


def logs(paths: Sequence[str]) -> list[Evidence | str]:
    """What each log says, or why it could not be read."""
    from shardguide.readers.logs.scan import matcher, scan

    words = diagnosis_store.words()
    much = sum(_size(path) for path in paths) > MUCH
    if much not in _automata:
        _automata[much] = matcher(words, much)
    return [_tried(lambda path: scan(path, _automata[much], len(words)), path) for path in paths]


def _size(path: str) -> int:
    """Bytes of a file; what is piped in or lies elsewhere may be any number."""
    try:
        return os.path.getsize(path)  # noqa: PTH202
    except OSError:
        return MUCH + 1


def dumps(paths: Sequence[str]) -> list[Dump | str]:
    """Each Flight Recorder dump, or why it could not be read."""
    from shardguide.readers.flight_recorder import read

    return [_tried(read, path) for path in paths]


def stacks(paths: Sequence[str]) -> list[list[Any] | str]:
    """Where the processes in each dump of stacks stand, or why it could not be read."""
    from .stacks import stood

    return [_tried(stood, path) for path in paths]


def _tried(function: Callable[[str], Any], path: str) -> Any:
    try:
        return function(path)
    except UnusableInput as error:
        return str(error)
    except (MemoryError, RecursionError):
        return f"{path} is nested too deeply or too large to be read."


def mapped(
    function: Callable[[Sequence[str]], list[Any]], paths: Sequence[str], executor: Executor | None
) -> Iterator[Any]:
    """What the function gives for every path, in their order. Standard input is read here, whoever reads the files."""
    if executor is None or len(paths) < 2 or "-" in paths:
        for path in paths:
            yield from function([path])
        return
    from concurrent.futures import BrokenExecutor

    each = max(1, min(FILES, len(paths) // TASKS))
    waiting: deque[Future[list[Any]]] = deque()
    try:
        for start in range(0, len(paths), each):
            waiting.append(executor.submit(function, list(paths[start : start + each])))
            if len(waiting) >= WAITING:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenExecutor:
        time.sleep(0.5)  # Ctrl-C goes to the workers as well: where they end first, ours comes within this moment
        raise UnusableInput(
            "a process that was reading ended; it may have run out of memory (try --executor serial)."
        ) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ENGINES:
            raise UnusableInput(f"the executor failed ({type(error).__name__}: {str(error)[:200]}).") from None
        raise
