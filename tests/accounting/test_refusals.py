"""Each refusal that is predicted is one that the real fully_shard raises, with the words predicted, and no sooner."""

from __future__ import annotations

from typing import Any

import pytest

from shardguide.accounting import Layout, Request, refusals

from . import small
from .oracle import describe, dp_mesh, fake_world, shard

pytestmark = pytest.mark.torch

WIDE = {"width": 16, "inner": 32}


def raised_by(module: Any, units: Any, layout: Layout, **arguments: Any) -> tuple[str, str]:
    """(when, error) of a step under the real fully_shard; ("", "") when nothing is raised."""
    import torch

    with fake_world(layout, 1) as mesh:
        when = "fully_shard"
        try:
            shard(module, units, dp_mesh(mesh, layout), **arguments)
            when = "first forward"
            loss = module(torch.arange(10).view(2, 5)).float().square().mean()
            when = "first backward"
            loss.backward()
        except Exception as error:
            return when, f"{type(error).__name__}: {error}"
    return "", ""


@pytest.mark.parametrize("size", [-1, 0, 1, 2, 3, 4, 5, 8, 16])
def test_int_reshard(size: int) -> None:
    module, layout = small.make(**WIDE), Layout(1, 8)
    expected = refusals(Request(describe(module, small.UNITS), layout, reshard_after_forward=size))
    when, error = raised_by(module, small.UNITS, layout, reshard_after_forward=size)
    assert [(r.when, r.error) for r in expected] == ([(when, error)] if error else [])


@pytest.mark.parametrize("size", [True, False, 2, 4, 8])
def test_int_reshard_on_another_dim(size: int) -> None:
    from torch.distributed.tensor import Shard

    module, layout = small.make(**WIDE), Layout(1, 8)
    placements = {"blocks.1.up.weight": 1}
    request = Request(describe(module, small.UNITS), layout, reshard_after_forward=size, placements=placements)
    weight = module.blocks[1].up.weight
    when, error = raised_by(
        module, small.UNITS, layout, reshard_after_forward=size,
        shard_placement_fn=lambda p: Shard(1) if p is weight else None,
    )  # fmt: skip
    assert [(r.when, r.error) for r in refusals(request)] == ([(when, error)] if error else [])


def test_int_reshard_with_tensor_parallelism() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    layout = Layout(1, 4, 2)
    plan = (("blocks.*.up", "colwise"), ("blocks.*.down", "rowwise"))
    for size, expected_count in ((2, 1), (True, 0)):
        module = small.make(**WIDE)
        request = Request(describe(module, small.UNITS, tp_plan=plan), layout, reshard_after_forward=size)
        expected = refusals(request)
        with fake_world(layout, 1) as mesh:
            styles = {f"blocks.{n}.up": ColwiseParallel() for n in range(3)}
            styles |= {f"blocks.{n}.down": RowwiseParallel() for n in range(3)}
            parallelize_module(module, mesh["tp"], styles)
            shard(module, small.UNITS, dp_mesh(mesh, layout), reshard_after_forward=size)
            assert len(expected) == expected_count
            if expected:
                with pytest.raises(NotImplementedError) as raised:
                    small.step(module)
                assert expected[0].error == f"NotImplementedError: {raised.value}"
                assert expected[0].when == "first forward"


def test_ties_and_dtypes() -> None:
    import torch

    layout = Layout(1, 4)
    module = small.make()
    apart = [(("embed",), "embedding"), *small.UNITS]
    (expected,) = refusals(Request(describe(module, apart), layout))
    when, error = raised_by(module, apart, layout)
    assert expected.when == when
    kind, _, words = expected.error.partition(": ... ")
    assert error.startswith(kind)
    assert words in error
    assert refusals(Request(describe(small.make(), apart), layout, release="2.11.0")) == ()

    module = small.make()
    module.blocks[2].up.to(torch.float64)
    (expected,) = refusals(Request(describe(module, small.UNITS), layout))
    when, error = raised_by(module, small.UNITS, layout)
    assert expected.when == when
    assert error.startswith(expected.error)


def test_nothing_to_refuse() -> None:
    module = small.make()
    for strategy in ("full", "none"):
        assert refusals(Request(describe(module, small.UNITS), Layout(1, 4), strategy)) == ()
