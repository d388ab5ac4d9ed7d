"""What the witnesses share: a log of the collectives and products that PyTorch runs, and process groups to run them on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))  # this folder is no package, the harness lies in one
from tests.snippets import gloo
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils._python_dispatch import TorchDispatchMode

COLLECTIVES = {
    "_allgather_base_": "gather",
    "allgather_": "gather",
    "_reduce_scatter_base_": "scatter",
    "reduce_scatter_": "scatter",
    "allreduce_": "reduce",
    "broadcast_": "broadcast",
}


class Event(NamedTuple):
    """One collective or one matrix product, in the order in which PyTorch issued it."""

    name: str  # "gather", "scatter", "reduce", "broadcast" or "mm"
    elements: int  # of a collective's whole tensor, of a product's second factor
    dtype: torch.dtype
    ranks: int  # of a collective's group
    op: str = ""  # of a reduction: "SUM", "AVG", ...


class Log(TorchDispatchMode):
    """Records the events inside ``with Log() as log``."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        space, name = func._schema.name.split("::")
        if space == "c10d" and name in COLLECTIVES:
            self.events.append(_collective(COLLECTIVES[name], args))
        elif name in ("mm", "addmm"):
            self.events.append(Event("mm", args[-1].numel(), args[-1].dtype, 0))
        return func(*args, **(kwargs or {}))

    def take(self) -> list[Event]:
        """The events so far; what follows is recorded anew."""
        done, self.events = self.events, []
        return done


def sizes(events: list[Event], *names: str) -> list[tuple[str, int]]:
    """Names and elements in order, of the names asked for (or of all)."""
    return [(event.name, event.elements) for event in events if not names or event.name in names]


def of(events: list[Event], name: str) -> list[Event]:
    """The events of one name."""
    return [event for event in events if event.name == name]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def _collective(name: str, args: Any) -> Event:
    lists = [found for found in map(_tensors, args) if found]
    whole = max(sum(tensor.numel() for tensor in found) for found in lists)
    objects = [arg for arg in args if isinstance(arg, torch.ScriptObject)]
    group = next(dist.ProcessGroup.unbox(arg) for arg in objects if "ProcessGroup" in str(arg._type()))
    op = next((dist.ReduceOp.RedOpType(arg.op()).name for arg in objects if "ReduceOp" in str(arg._type())), "")
    return Event(name, whole, lists[0][0].dtype, group.size(), op)


@contextmanager
def fake_group(world: int, rank: int) -> Iterator[None]:
    """A process group whose collectives do nothing, seen from one rank of many: shapes and order, but no values."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()
        gloo.forget()


def on_gloo(world: int, *experiments: Callable[[DeviceMesh], Any], timeout: float = 300.0) -> dict[str, list[Any]]:
    """Runs every experiment on ``world`` real processes: its name -> what each rank returned, in rank order."""

    def body(rank: int) -> dict[str, Any]:
        if dist.is_initialized():  # inherited from the parent, where it is a fake one
            dist.destroy_process_group()
        gloo.init()
        mesh = init_device_mesh("cpu", (world,))
        results = {}
        for experiment in experiments:
            torch.manual_seed(0)
            results[experiment.__name__] = experiment(mesh)
        return results

    ranks = gloo.run(world, body, timeout=timeout)
    return {name: [result[name] for result in ranks] for name in ranks[0]}


WEIGHTS = (256, 512, 768)  # elements of the three layers: each event shows by its size whose it is


def three_layers(**options: Any) -> nn.Sequential:
    """Three linear layers without biases."""
    widths = (16, 16, 32, 24)
    return nn.Sequential(*(nn.Linear(a, b, bias=False, **options) for a, b in pairwise(widths)))


def trace(model: nn.Module, rows: int = 2) -> tuple[list[Event], list[Event]]:
    """The events of one forward and of its backward."""
    with Log() as log:
        loss = model(torch.ones(rows, 16)).float().sum()
        forward = log.take()
        loss.backward()
        return forward, log.take()


# FSDP1


def fsdp(module: nn.Module, **options: Any) -> FullyShardedDataParallel:
    """FSDP1 on the CPU."""
    return FullyShardedDataParallel(module, device_id=torch.device("cpu"), **options)


def wrapped(**options: Any) -> FullyShardedDataParallel:
    """Three layers in a unit each; the root has no parameters of its own."""
    return fsdp(three_layers(), **{"auto_wrap_policy": ModuleWrapPolicy({nn.Linear}), **options})


def units(model: nn.Module) -> list[FullyShardedDataParallel]:
    """The root and the units below it."""
    return [module for module in model.modules() if isinstance(module, FullyShardedDataParallel)]


def flat(model: nn.Module) -> list[int]:
    """Elements of the parameters as they are now."""
    return [parameter.numel() for parameter in model.parameters()]
