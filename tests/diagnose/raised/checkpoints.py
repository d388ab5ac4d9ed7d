"""Distributed checkpoints and state dicts."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from .common import case, shard


def folder() -> str:
    """A new folder that both ranks know."""
    name = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(name)
    return str(name[0])


@case
def dcp_missing_key(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp

    where = folder()
    dcp.save({"a": torch.ones(2)}, checkpoint_id=where)
    planner = dcp.DefaultLoadPlanner(allow_partial_load=fixed)
    # A name of the model or of the optimizer has a diagnosis of its own.
    dcp.load({"a": torch.ones(2), "extra": torch.ones(2)}, checkpoint_id=where, planner=planner)


@case
def optimizer_state_key_mismatch(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    where = folder()
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=where)
    raw = {"state": {0: {"step": torch.tensor(1.0)}}}
    dcp.load({"optimizer": get_optimizer_state_dict(model, optimizer) if fixed else raw}, checkpoint_id=where)


@case
def dcp_size_mismatch(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp

    where = folder()
    dcp.save({"a": torch.ones(2)}, checkpoint_id=where)
    dcp.load({"a": torch.ones(2 if fixed else 3)}, checkpoint_id=where)


@case
def dcp_no_metadata(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp

    where = folder()
    if fixed:
        dcp.save({"a": torch.ones(2)}, checkpoint_id=where)
    dcp.load({"a": torch.ones(2)}, checkpoint_id=where)


@case
def dcp_exists(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp

    where = folder()
    for _ in range(2):
        dcp.save({"a": torch.ones(2)}, storage_writer=dcp.FileSystemWriter(where, overwrite=fixed))


@case
def dcp_storage(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp

    where = folder()
    dcp.save({"a": torch.ones(2)}, **({"checkpoint_id": where} if fixed else {}))


@case
def dcp_value_type(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp

    where = folder()
    dcp.save({"a": {"b": torch.ones(2)}, "c" if fixed else "a.b": torch.ones(2)}, checkpoint_id=where)


@case
def sd_broadcast_needs_full(fixed: bool) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    model = shard(nn.Linear(4, 4))
    options = StateDictOptions(full_state_dict=fixed, broadcast_from_rank0=True)
    set_model_state_dict(model, nn.Linear(4, 4).state_dict() if dist.get_rank() == 0 else {}, options=options)


@case
def sd_empty(fixed: bool) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    model = shard(nn.Linear(4, 4))
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=fixed)
    set_model_state_dict(model, nn.Linear(4, 4).state_dict() if fixed and dist.get_rank() == 0 else {}, options=options)


@case
def sd_optimizer_state_missing(fixed: bool) -> None:
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    states = get_optimizer_state_dict(model, optimizer)
    model[1].requires_grad_(True)
    set_optimizer_state_dict(model, optimizer, states, options=StateDictOptions(strict=not fixed))


@case
def weights_only_default(fixed: bool) -> None:
    path = Path(tempfile.mkdtemp()) / "x.pt"
    torch.save({"args": argparse.Namespace(lr=1.0)}, path)
    with torch.serialization.safe_globals([argparse.Namespace] if fixed else []):
        torch.load(path)


@case
def optimizer_groups_differ(fixed: bool) -> None:
    model = nn.Linear(4, 4)
    one = torch.optim.Adam(model.parameters())
    torch.optim.Adam(model.parameters() if fixed else [model.weight]).load_state_dict(one.state_dict())


@case
def state_dict_shape_differs(fixed: bool) -> None:
    nn.Linear(4, 4).load_state_dict(nn.Linear(4, 4 if fixed else 8).state_dict())


@case
def flat_param_saved(fixed: bool) -> None:
    states = nn.Linear(4, 4).state_dict()
    if not fixed:
        states["weight"] = states["weight"].flatten()
    nn.Linear(4, 4).load_state_dict(states)


@case
def ddp_prefix_in_state_dict(fixed: bool) -> None:
    states = nn.parallel.DistributedDataParallel(nn.Linear(4, 4)).state_dict()
    if fixed:
        torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(states, "module.")
    nn.Linear(4, 4).load_state_dict(states)


@case
def compile_prefix_in_state_dict(fixed: bool) -> None:
    model = nn.Linear(4, 4)
    if fixed:
        model.compile()
    else:
        model = torch.compile(model)
    nn.Linear(4, 4).load_state_dict(model.state_dict())


@case
def sd_mixed_devices(fixed: bool) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    states = get_optimizer_state_dict(model, optimizer, options=options)
    if not fixed:
        optimizer.state[model[0].weight]["exp_avg"] = torch.empty(4, 4, device="meta")
    set_optimizer_state_dict(model, optimizer, states, options=options)


@case
def sd_flat_optimizer(fixed: bool) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if not fixed:
        optimizer.state[model.weight]["note"] = "text"
    get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))


@case
def dcp_arguments(fixed: bool) -> None:
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    DefaultStager(
        StagingOptions(
            use_pinned_memory=False, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=not fixed
        )
    ).close()


@case
def dcp_global_plan(fixed: bool) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DTensor, Shard

    from .common import mesh

    # The ranks claim parts of different global shapes.
    rows = 4 if fixed or dist.get_rank() == 0 else 6
    part = DTensor.from_local(
        torch.ones(2, 2), mesh(), [Shard(0)], run_check=False, shape=torch.Size([rows, 2]), stride=(2, 1)
    )
    dcp.save({"w": part}, checkpoint_id=folder())
