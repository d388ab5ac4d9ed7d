"""Real process groups for tests: N forked processes over Gloo on this machine's loopback.

The caller has imported torch already, so a rank costs one fork (milliseconds), not one import of PyTorch (seconds). Every rank
gets the environment that torchrun gives it (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT …): the code
under test calls ``init_process_group`` itself, or the body calls ``init`` below.

The store is served by the parent, as torchrun's agent does it (TORCHELASTIC_USE_AGENT_STORE), on a port the kernel chose:
no guessing of free ports, so tests may run in parallel.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any


class RankFailed(AssertionError):
    """At least one rank raised, died or did not finish in time; the message holds what each one said."""


def init() -> None:
    """``init_process_group`` over Gloo from the environment, for bodies that test something other than the set-up."""
    import torch.distributed as dist

    dist.init_process_group("gloo")


def event() -> Any:
    """What one rank sets and another waits for: the order of what happens on two ranks, where the test is about that order.

    To be made before ``run``. A wait ends when the event is set; its time is only for the case that the rank has died.
    """
    return multiprocessing.get_context("fork").Event()


def run(world: int, body: Callable[[int], Any], *, timeout: float = 300.0) -> list[Any]:
    """What ``body(rank)`` returned in each of ``world`` forked processes, in rank order (anything that pickles).

    Raises RankFailed with every rank's traceback if one fails, and after ``timeout`` seconds; no process is left behind.
    The time is only shortened where the body is to hang: how long a busy machine takes is no matter.

    A rank whose body has returned stays until all have: one that leaves closes its connections, and a rank that is still on its
    way through init_process_group, which is no barrier, fails with "Connection closed by peer". A body that is about such a rank
    leaves by itself.
    """
    import torch._dynamo  # noqa: F401 - by DDP, at a second of CPU: here once instead of on every rank
    from torch.distributed import TCPStore

    context = multiprocessing.get_context("fork")
    children, pipes, whole = [], [], False
    for rank in range(world):
        ours, theirs = context.Pipe()
        child = context.Process(target=_child, args=(rank, world, body, theirs), daemon=True)
        child.start()
        theirs.close()
        children.append(child)
        pipes.append(ours)
    # The store starts its thread after the forks: a child must not inherit a lock that a thread holds.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    try:
        for pipe in pipes:
            pipe.send(store.port)
        results, errors = _collect(pipes, time.monotonic() + timeout)
        whole = len(results) == world
    finally:
        for pipe in pipes:
            with contextlib.suppress(OSError):  # who has failed is gone
                pipe.send("all are through")
        for child in children:
            child.join(timeout=30 if whole else 0.5)
            if child.exitcode is None:
                child.kill()
                child.join()
        for pipe in pipes:
            pipe.close()
        del store
    if errors or len(results) < world:
        missing = [
            f"rank {rank}: no result within {timeout} s" for rank in range(world) if rank not in results | errors
        ]
        raise RankFailed("\n".join([f"rank {rank}: {text}" for rank, text in sorted(errors.items())] + missing))
    return [results[rank] for rank in range(world)]


def _collect(pipes: list[Connection], deadline: float) -> tuple[dict[int, Any], dict[int, str]]:
    results: dict[int, Any] = {}
    errors: dict[int, str] = {}
    waiting = dict(enumerate(pipes))
    while waiting and (left := deadline - time.monotonic()) > 0:
        if errors:  # the others hang in a collective without the failed one; give them a moment to say why
            left = min(left, 2.0)
        ready = wait(list(waiting.values()), timeout=left)
        if not ready:
            break
        for rank, pipe in list(waiting.items()):
            if pipe not in ready:
                continue
            del waiting[rank]
            try:
                good, value = pickle.loads(pipe.recv_bytes())  # noqa: S301 (from our own child)
            except EOFError:
                good, value = False, "the process died without a word"
            (results if good else errors)[rank] = value
    return results, errors


def forget() -> None:
    """Clear what DTensor remembers by mesh: an equal mesh of a later process group would get this one's, and its dead groups."""
    import sys

    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import _redistribute
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    for held in vars(_redistribute).values():
        if hasattr(held, "cache_clear"):
            held.cache_clear()


def _child(rank: int, world: int, body: Callable[[int], Any], pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    parent = os.getppid()
    forget()
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(pipe.recv()),
        TORCHELASTIC_USE_AGENT_STORE="True",
        GLOO_SOCKET_IFNAME="lo",
    )
    try:
        message: tuple[bool, Any] = (True, body(rank))
    except BaseException:
        message = (False, traceback.format_exc())
    # Plain pickling copies tensors; Connection.send would pass them through shared memory that dies with this process.
    pipe.send_bytes(pickle.dumps(message))
    # Without a group it has left already, and its connections with it: to stay would only keep the others from noticing.
    while message[0] and dist.is_initialized() and os.getppid() == parent and not pipe.poll(1):
        pass
    if message[0] and dist.is_initialized():
        dist.destroy_process_group()
    os._exit(0)  # no atexit handlers, no pytest teardown in a forked child
