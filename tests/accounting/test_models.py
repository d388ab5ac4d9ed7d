"""per_rank against the real fully_shard on real architectures: equal to the byte on every rank tried."""

from __future__ import annotations

import pytest

from shardguide.accounting import Layout, Request, groups, per_rank
from shardguide.knowledge.families import index

from . import zoo
from .oracle import describe, dp_mesh, fake_world, held, param_groups, run_of, shard

pytestmark = pytest.mark.torch

WORLDS = [Layout(1, world) for world in (1, 2, 6, 8, 16, 96, 1024)] + [Layout(2, 8), Layout(128, 8), Layout(4, 6)]


def ranks_of(layout: Layout) -> list[int]:
    return sorted({0, layout.world - 1})


def check(values: dict, layout: Layout, ranks: list[int], dtype: str = "float32") -> None:
    for rank in ranks:
        module, units = zoo.build(values, dtype)
        model = describe(module, units)
        runs = per_rank(Request(model, layout))
        with fake_world(layout, rank) as mesh:
            shard(module, units, dp_mesh(mesh, layout))
            run = run_of(runs, rank)
            assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)
            assert run.gradient_bytes == run.parameter_bytes
            assert run.buffer_bytes == sum(buffer.untyped_storage().nbytes() for buffer in module.buffers())
            ours, theirs = groups(Request(model, layout)), param_groups(module)
            assert [group.stored_parameters for group in ours[:-1]] == [
                sum(p._sharded_param_data.numel() for p in group.fsdp_params) for group in theirs[1:]
            ]
            assert ours[-1].stored_parameters == sum(p._sharded_param_data.numel() for p in theirs[0].fsdp_params)


@pytest.mark.parametrize("kind", zoo.FAMILIES)
def test_two_layers_of_every_family(kind: str) -> None:
    values = {"model_type": kind} | zoo.FAMILIES[kind]
    for layout in WORLDS:
        check(values, layout, ranks_of(layout))


def test_sixteen_thousand_ranks() -> None:
    check({"model_type": "llama"} | zoo.FAMILIES["llama"], Layout(1, 16384), [16383])


@pytest.mark.slow
@pytest.mark.parametrize("layout", [*WORLDS, Layout(1, 16384), Layout(2048, 8)], ids=str)
@pytest.mark.parametrize("kind", zoo.FAMILIES)
def test_two_layers_of_every_family_on_every_rank_tried(kind: str, layout: Layout) -> None:
    ranks = {0, layout.world // 2, layout.world // 3, layout.world - 2, layout.world - 1}
    if layout.shard_size == 16384:  # torch.chunk into that many pieces takes a tenth of a second per parameter
        ranks = {layout.world // 3, layout.world - 1}
    check({"model_type": kind} | zoo.FAMILIES[kind], layout, sorted(r for r in ranks if r >= 0))


FULL = {"llama-3.1-8b": zoo.LLAMA_3_1_8B, "mixtral-8x7b": zoo.MIXTRAL_8X7B, "llama-3.1-70b": zoo.LLAMA_3_1_70B}


@pytest.mark.parametrize("world", [6, 96])
@pytest.mark.parametrize("name", FULL)
def test_full_depth(name: str, world: int) -> None:
    check(FULL[name], Layout(1, world), [world - 1], "bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [*WORLDS, Layout(1, 16384)], ids=str)
@pytest.mark.parametrize("name", FULL)
def test_full_depth_everywhere(name: str, layout: Layout) -> None:
    check(FULL[name], layout, ranks_of(layout))


def test_published_counts() -> None:
    # Parameter counts of the published checkpoints; the shares at world 6 were read off the real fully_shard.
    model = index.build(zoo.LLAMA_3_1_8B, "transformers5")
    runs = per_rank(Request(model, Layout(1, 6), param_dtype="float32", optimizer="adamw"))
    assert model.size == 8_030_261_248
    last = run_of(runs, 5)
    assert (last.parameters, last.stored_parameters) == (1_335_864_553, 1_338_879_339)
    assert last.optimizer_bytes == 2 * 4 * 1_335_864_553
    assert last.parameter_bytes == last.gradient_bytes == 4 * 1_338_879_339
    assert index.build(zoo.LLAMA_3_1_70B, "transformers5").size == 70_553_706_496


def test_fused_experts_pay_for_padding() -> None:
    from torch.distributed.tensor import Shard

    # Mixtral-8x7B, experts fused on dim 0: 8 rows over 1024 ranks make every rank store 120 times its share.
    layout = Layout(1, 1024)
    module, units = zoo.build(zoo.MIXTRAL_8X7B)
    model = describe(module, units)
    assert {run.stored_parameters for run in per_rank(Request(model, layout))} == {5_638_848_772}
    placements = {p.name: 1 for p in model.parameters if len(p.shape) == 3}
    run = run_of(per_rank(Request(model, layout, placements=placements)), 1023)
    with fake_world(layout, 1023) as mesh:
        shard(module, units, mesh, shard_placement_fn=lambda p: Shard(1) if p.ndim == 3 else None)
        assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)
    assert run.stored_parameters < 5_638_848_772 // 100
