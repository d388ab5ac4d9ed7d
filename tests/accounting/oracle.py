"""The real thing to compare with: PyTorch's fully_shard on a fake process group, without memory or other processes.

Everything here imports torch inside functions, so that collecting the tests does not need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from shardguide.accounting import Layout
from shardguide.guidance.model import Buffer, Model, Parameter, Unit


@contextlib.contextmanager
def fake_world(layout: Layout, rank: int) -> Iterator[Any]:
    """A mesh of the layout as ``rank`` sees it; dims of size 1 are left out, as a user would."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    dist.init_process_group("fake", rank=rank, world_size=layout.world, store=FakeStore())
    try:
        names, sizes = [], []
        if layout.replicate_size > 1:
            names.append("replicate")
            sizes.append(layout.replicate_size)
        names.append("shard")
        sizes.append(layout.shard_size)
        if layout.tp_size > 1:
            names.append("tp")
            sizes.append(layout.tp_size)
        yield init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names))
    finally:
        dist.destroy_process_group()


def dp_mesh(mesh: Any, layout: Layout) -> Any:
    """The part of the mesh that fully_shard gets."""
    names = ("replicate", "shard") if layout.replicate_size > 1 else ("shard",)
    return mesh[names] if len(names) > 1 or layout.tp_size > 1 else mesh


def describe(module: Any, units: list[tuple[tuple[str, ...], str]], **extra: Any) -> Model:
    """The guidance model of a torch module, as a shape manifest would carry it."""
    aliases: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
    ignored = extra.pop("ignored", set())
    parameters = tuple(
        Parameter(
            name,
            tuple(parameter.shape),
            str(parameter.dtype).removeprefix("torch."),
            parameter.requires_grad,
            tuple(a for a in aliases[id(parameter)] if a != name),
            name in ignored,
        )
        for name, parameter in module.named_parameters()
    )
    buffers = tuple(
        Buffer(name, tuple(buffer.shape), str(buffer.dtype).removeprefix("torch."))
        for name, buffer in module.named_buffers()
    )
    return Model(
        "test", "", "stated", type(module).__name__, parameters, buffers,
        tuple(Unit(modules, "", role) for modules, role in units), **extra,
    )  # fmt: skip


def shard(module: Any, units: list[tuple[tuple[str, ...], str]], mesh: Any, **arguments: Any) -> None:
    """fully_shard each unit, bottom-up, then the root."""
    from torch.distributed.fsdp import fully_shard

    for names, _ in units:
        modules = [module.get_submodule(name) for name in names]
        fully_shard(modules[0] if len(modules) == 1 else modules, mesh=mesh, **arguments)
    fully_shard(module, mesh=mesh, **arguments)


def local(tensor: Any) -> Any:
    """The part of a parameter, gradient or state that lies on this rank."""
    from torch.distributed.tensor import DTensor

    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def held(module: Any) -> tuple[int, int, int]:
    """(elements owned, elements stored, bytes stored) of a sharded module's parameters on this rank."""
    owned = stored = nbytes = 0
    for parameter in module.parameters():
        tensor = local(parameter)
        storage = tensor.untyped_storage().nbytes()
        assert storage % tensor.itemsize == 0
        owned += tensor.numel()
        stored += storage // tensor.itemsize
        nbytes += storage
    return owned, stored, nbytes


def param_groups(module: Any) -> list[Any]:
    """The FSDPParamGroups of a sharded module, in module order."""
    from torch.distributed.fsdp import FSDPModule

    found: list[Any] = []
    for submodule in module.modules():
        if isinstance(submodule, FSDPModule):
            for group in submodule._get_fsdp_state()._fsdp_param_groups:
                if group not in found:
                    found.append(group)
    return found


def state_bytes(optimizer: Any) -> tuple[int, int]:
    """(bytes of the state's tensors on this rank, bytes of its zero-dimensional tensors)."""
    tensors = scalars = 0
    for state in optimizer.state.values():
        for value in state.values():
            if not hasattr(value, "dim"):
                continue
            if value.dim() == 0:
                scalars += local(value).nbytes
            else:
                tensors += local(value).untyped_storage().nbytes()
    return tensors, scalars


def run_of(runs: Any, rank: int) -> Any:
    """The run that a rank is in; exactly one."""
    (found,) = [run for run in runs if run.first_rank <= rank <= run.last_rank]
    return found


def on_meta(build: Callable[[], Any]) -> Any:
    """A module built without memory."""
    import torch

    with torch.device("meta"):
        return build()
