"""The processes that read.

They are started before the guard is on, which afterwards lets nobody start a process. Reading processes of our own put the guard
on as well before they read anything. An engine's client (Dask, Ray) needs the network and code of its own, so it lives in a
process beside this one, which only hands paths to it and takes summaries back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

from .engines import cores

STARTING = 120  # seconds in which workers must be there

_engine: Any = None  # in the process beside: Dask's or Ray's executor
_handed: dict[int, Any] = {}  # in the process beside: what the engine is at


def processes(count: int, schemes: Sequence[str] = ()) -> Executor:
    """Processes that read, all of them running and under the guard."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Forking is cheap and safe here: nothing has started a thread yet. On macOS system libraries do.
    context = multiprocessing.get_context("fork" if sys.platform.startswith("linux") else "spawn")
    barrier = context.Barrier(count)
    pool = ProcessPoolExecutor(count, context, _reader, (os.getpid(), barrier, tuple(schemes)))
    # Every worker waits for all others, so that all are there when the guard comes on.
    for future in [pool.submit(_ready) for _ in range(count)]:
        future.result()
    return pool


def running() -> list[int]:
    """The numbers of the processes that this one has started."""
    import multiprocessing

    return [one.pid for one in multiprocessing.active_children() if one.pid is not None]


def _reader(parent: int, barrier: Any, schemes: tuple[str, ...]) -> None:
    """In a process that reads: first the guard, then work."""
    import ahocorasick_rs  # before the guard, which does not know it

    import shardguide.readers.logs.scan
    from shardguide import guard
    from shardguide.workflows.diagnose import reading

    _accompany(parent)
    packages: frozenset[str] = frozenset()
    if schemes:
        from shardguide.readers.remote import load

        packages = load(schemes)
    _ = ahocorasick_rs, reading, shardguide
    guard.install(packages=packages)
    guard.permit("results")
    if schemes:
        guard.permit("remote")
    barrier.wait(STARTING)


def _ready() -> None:
    """Something to do for a worker, when it is there."""


def _accompany(parent: int) -> None:
    """End with the process that started this one, however it ends, and with Ctrl-C at once."""
    import signal
    import threading
    import time

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    if (
        signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    ):  # a job in the background ignores Ctrl-C, and so do its workers
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=watch, daemon=True).start()


class Beside(Executor):
    """An engine's executor in a process of its own."""

    def __init__(self, name: str, address: str) -> None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context("fork" if sys.platform.startswith("linux") else "spawn")
        self.pool = ProcessPoolExecutor(1, context, _accompany, (os.getpid(),))
        self.number = 0
        problem = self.pool.submit(_connect, name, address).result()
        if problem:
            self.pool.shutdown()
            raise UnusableInput(problem)

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Hand a task over; the result is fetched when somebody asks for it."""
        self.number += 1
        self.pool.submit(_hand_over, self.number, function, arguments, named)
        return _Later(self.pool, self.number)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close the connection, and the cluster where it was made for this."""
        self.pool.submit(_close)
        self.pool.shutdown(wait=wait)


class _Later(Future[Any]):
    """The result of a task that an engine has."""

    def __init__(self, pool: Executor, number: int) -> None:
        super().__init__()
        self.pool, self.number = pool, number

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it."""
        good, found = self.pool.submit(_take_back, self.number).result(timeout)
        if not good:
            raise UnusableInput(f"the executor failed: {found}.")
        return found


def _connect(name: str, address: str) -> str:
    """In the process beside: start the engine's client; returns why it did not."""
    global _engine
    try:
        if name == "dask":
            from distributed import Client

            options = {} if address else {"n_workers": cores(), "threads_per_worker": 1, "dashboard_address": None}
            _engine = Client(address or None, set_as_default=False, timeout=30, **options).get_executor()
        else:
            from .ray_executor import RayExecutor

            _engine = RayExecutor(address)
    except ImportError as error:
        return f"--executor {name} needs {name}: pip install '.[{name}]' in Shardguide's folder ({str(error)[:120]})."
    except Exception as error:
        return f"--executor {name}: no connection ({type(error).__name__}: {str(error)[:200]})."
    return ""


def _hand_over(number: int, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    _handed[number] = _engine.submit(function, *arguments, **named)


def _take_back(number: int) -> tuple[bool, Any]:
    try:
        return True, _handed.pop(number).result()
    except Exception as error:  # an engine's own errors mean nothing to the process that asks
        return False, f"{type(error).__name__}: {str(error)[:200]}"


def _close() -> None:
    client = getattr(_engine, "_client", None)
    _engine.shutdown()
    if client is not None:  # Dask's executor leaves the client alone, and the client the cluster that it made
        client.close()
