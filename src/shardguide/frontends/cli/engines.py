"""Who reads the files: what ``--executor`` names, or processes where these pay. All of it is started before the guard is on."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

SPECS = "serial, auto, thread[:N], process[:N], dask[:ADDRESS] or ray[:ADDRESS]"
PAYS = 1 << 26  # bytes in several files, from where on processes cost less than they save
LOOKED_AT = 20_000  # entries of folders, to learn that
MOST_WORKERS = 256
MOST_UNASKED = 16


def start(spec: str, paths: Sequence[str], schemes: Sequence[str] = ()) -> Executor | None:
    """The executor of a specification, its processes running; None where this process reads.

    Raises UnusableInput for a specification that is none, and where an engine is not installed or does not answer.
    """
    name, _, rest = spec.partition(":")
    if name in ("dask", "ray"):
        from .workers import Beside

        return Beside(name, rest)
    count = _count(rest, spec)
    if name == "thread":
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(count or cores())
    if spec == "serial" or (spec == "auto" and (schemes or cores() == 1 or not pays(paths))):
        return None
    if name == "process" or spec == "auto":
        from .workers import processes

        return processes(count or min(cores(), MOST_UNASKED), schemes)
    raise UnusableInput(f"--executor {spec[:80]} is none of {SPECS}.")


def _count(text: str, spec: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= MOST_WORKERS:
        raise UnusableInput(f"--executor {spec[:80]}: the number of workers is from 1 to {MOST_WORKERS}.")
    return int(text)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pays(paths: Sequence[str]) -> bool:
    """Whether there are several files with much in them. Only sizes are looked at."""
    files = size = looked = 0
    todo = [os.fsencode(path) for path in paths if path != "-" and "\x00" not in path]
    while todo and looked < LOOKED_AT:
        path = todo.pop()
        looked += 1
        try:
            if os.path.isdir(path):  # noqa: PTH112
                with os.scandir(path) as entries:
                    for entry in entries:
                        looked += 1
                        if looked > LOOKED_AT:
                            break
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
                        elif entry.is_file():
                            files += 1
                            size += entry.stat().st_size
            elif os.path.isfile(path):  # noqa: PTH113
                files += 1
                size += os.path.getsize(path)  # noqa: PTH202
        except OSError:
            continue
        if files > 1 and size > PAYS:
            return True
    return False
