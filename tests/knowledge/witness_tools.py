"""What the witnesses share: a log of the collectives and computations that PyTorch runs, in their order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

COLLECTIVES = {
    "_allgather_base_": "gather",
    "allgather_": "gather",
    "_reduce_scatter_base_": "scatter",
    "reduce_scatter_": "scatter",
    "allreduce_": "reduce",
    "broadcast_": "broadcast",
}
COMPUTATIONS = {"mm", "addmm"}


class Event(NamedTuple):
    """One collective (elements of its whole tensor) or matrix product (``where`` is the phase it ran in)."""

    name: str  # "gather", "scatter", "reduce", "broadcast", "mm"
    elements: int = 0
    dtype: Any = None
    ranks: int = 0


class Log(TorchDispatchMode):
    """Records the events inside ``with Log() as log``."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        if name in COLLECTIVES and func._schema.name.startswith("c10d::"):
            self.events.append(collective(COLLECTIVES[name], args))
        elif name in COMPUTATIONS:
            self.events.append(Event("mm", args[-1].numel()))
        return func(*args, **(kwargs or {}))

    def names(self, *only: str) -> list[str]:
        """The events' names in order; only those asked for, if any."""
        return [event.name for event in self.events if not only or event.name in only]

    def of(self, name: str) -> list[Event]:
        """All events of one name."""
        return [event for event in self.events if event.name == name]

    def sizes(self, *only: str) -> list[tuple[str, int]]:
        """Names and elements in order."""
        return [(event.name, event.elements) for event in self.events if not only or event.name in only]

    def take(self) -> Log:
        """The log so far; what follows is recorded anew."""
        done = Log()
        done.events, self.events = self.events, []
        return done


def collective(name: str, args: Any) -> Event:
    flat: list[Any] = []
    group = 0
    stack = list(args)
    while stack:
        item = stack.pop(0)
        if isinstance(item, torch.Tensor):
            flat.append(item)
        elif isinstance(item, list | tuple):
            stack[:0] = list(item)
        elif isinstance(item, torch.ScriptObject) and not group:
            try:
                group = dist.ProcessGroup.unbox(item).size()
            except (RuntimeError, TypeError):
                continue
    largest = max(flat, key=lambda tensor: tensor.numel())
    return Event(name, largest.numel(), largest.dtype, group)


@contextmanager
def fake_group(ranks: int, rank: int):
    """A process group whose collectives do nothing, as one rank of many."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
