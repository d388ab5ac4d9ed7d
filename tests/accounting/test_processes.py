"""The same with real processes over Gloo: the fake process group hides nothing from the arithmetic."""

from __future__ import annotations

import multiprocessing
import traceback
from pathlib import Path
from typing import Any

import pytest

from shardguide.accounting import Layout, Request, flat_per_rank, per_rank

from . import small
from .oracle import describe, held, run_of, state_bytes

pytestmark = pytest.mark.torch


def worker(rank: int, layout: Layout, path: str, results: Any) -> None:
    """One rank: a step under fully_shard and one under FSDP1, each compared with the arithmetic for this rank."""
    try:
        results.put((rank, compare(rank, layout, path)))
    except BaseException:
        results.put((rank, traceback.format_exc()))


def compare(rank: int, layout: Layout, path: str) -> str:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from .oracle import shard
    from .test_flat import flat_params, wrap
    from .test_states import gradient_bytes

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=layout.world, store=dist.FileStore(path, layout.world))
    names, sizes = ("replicate", "shard"), (layout.replicate_size, layout.shard_size)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names) if layout.replicate_size > 1 else None
    mesh = mesh or init_device_mesh("cpu", sizes[1:], mesh_dim_names=names[1:])

    module = small.make()
    module.blocks[0].up.requires_grad_(False)
    request = Request(describe(module, small.UNITS), layout, optimizer="adamw")
    run = run_of(per_rank(request), rank)
    shard(module, small.UNITS, mesh)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad])
    for _ in range(2):
        small.step(module)
        optimizer.step()
    assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)
    assert run.gradient_bytes == gradient_bytes(module)
    assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)

    module = small.make()
    run = run_of(flat_per_rank(Request(describe(module, small.UNITS), layout, optimizer="adamw")), rank)
    wrapped = wrap(module, mesh, layout, True)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    small.step(wrapped)
    optimizer.step()
    assert run.stored_parameters == sum(flat.numel() for flat in flat_params(wrapped))
    assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)
    dist.destroy_process_group()
    return ""


@pytest.mark.parametrize("layout", [Layout(1, 3), Layout(2, 2)], ids=str)
def test_gloo(layout: Layout, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])  # imported once; the ranks are forked from there
    results = context.Queue()
    processes = [
        context.Process(target=worker, args=(rank, layout, str(tmp_path / "store"), results))
        for rank in range(layout.world)
    ]
    for process in processes:
        process.start()
    try:
        found = dict(results.get(timeout=300) for _ in processes)
    finally:
        for process in processes:
            process.join(timeout=30)
            if process.is_alive():
                process.terminate()
    assert found == dict.fromkeys(range(layout.world), "")
