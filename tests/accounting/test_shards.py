"""The pieces of one parameter, for any shape, world, rank and dim: against torch.chunk and the real fully_shard."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardguide.accounting import Layout, Request, lower_bounds, per_rank
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.model import Model, Parameter

from .oracle import describe, fake_world, held, on_meta, run_of, shard, state_bytes


def model_of(*parameters: Parameter, **fields: object) -> Model:
    return Model("test", "", "stated", "", parameters, **fields)  # type: ignore[arg-type]


SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=2).flatmap(
    lambda rest: st.one_of(st.integers(0, 40), st.integers(0, 20_000)).map(lambda first: (first, *rest))
)


@pytest.mark.torch
@settings(max_examples=400, deadline=None)
@given(shape=SHAPES, world=st.one_of(st.integers(1, 40), st.integers(1, 4096)), data=st.data())
def test_rows_are_those_of_torch_chunk(shape: tuple[int, ...], world: int, data: st.DataObject) -> None:
    import torch

    tensor = torch.empty(shape, device="meta")
    chunks = [chunk.numel() for chunk in torch.chunk(tensor, world)]
    owned = chunks + [0] * (world - len(chunks))
    runs = per_rank(Request(model_of(Parameter("w", shape)), Layout(1, world), param_dtype="bfloat16"))
    # Every rank once, in order, and neighbours differ.
    assert [run.first_rank for run in runs] == [0] + [run.last_rank + 1 for run in runs[:-1]]
    assert runs[-1].last_rank == world - 1
    assert all(a[2:] != b[2:] for a, b in pairwise(runs))
    for run in runs:
        ends = {run.first_rank, run.last_rank, data.draw(st.integers(run.first_rank, run.last_rank))}
        for rank in ends:
            assert run.parameters == owned[rank]
        assert run.stored_parameters == chunks[0]
        assert run.parameter_bytes == run.gradient_bytes == 2 * chunks[0]
    assert sum(run.parameters * (run.last_rank - run.first_rank + 1) for run in runs) == tensor.numel()


@pytest.mark.torch
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_module_is_sharded_as_fully_shard_does(data: st.DataObject) -> None:
    import torch
    from torch import nn
    from torch.distributed.tensor import Shard

    replicas = data.draw(st.sampled_from([1, 1, 2, 3]))
    layout = Layout(replicas, data.draw(st.one_of(st.integers(1, 12), st.integers(1, 512))))
    rank = data.draw(st.integers(0, layout.world - 1))
    sizes = data.draw(st.lists(SHAPES.filter(lambda s: s[0] > 0), min_size=1, max_size=5))
    evenly = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    frozen = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    dtypes = data.draw(st.lists(st.sampled_from(["float32", "bfloat16"]), min_size=len(sizes), max_size=len(sizes)))
    ignored = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))

    def build() -> nn.Module:
        module = nn.Module()
        for number, shape in enumerate(sizes):
            if evenly[number]:  # a second dim that the shard size divides
                shape = (shape[0], layout.shard_size * 2, *shape[2:])
            parameter = nn.Parameter(torch.empty(shape, dtype=getattr(torch, dtypes[number])))
            module.register_parameter(f"p{number}", parameter.requires_grad_(not frozen[number]))
        return module

    module = on_meta(build)
    placements = {f"p{n}": 1 for n, even in enumerate(evenly) if even}
    names = {f"p{n}" for n, out in enumerate(ignored) if out}
    model = describe(module, [], ignored=names)
    dims = {id(p): placements.get(n) for n, p in module.named_parameters()}
    request = Request(model, layout, placements=placements, optimizer="adamw")
    run = run_of(per_rank(request), rank)
    with fake_world(layout, rank) as mesh:
        shard(
            module, [], mesh,
            shard_placement_fn=lambda p: None if dims[id(p)] is None else Shard(dims[id(p)]),
            ignored_params={p for n, p in module.named_parameters() if n in names},
        )  # fmt: skip
        assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)
        # The state of a real optimizer, created on the meta device from gradients of the sharded parameters' own kind.
        trained = [p for p in module.parameters() if p.requires_grad]
        if trained:
            optimizer = torch.optim.AdamW(trained, foreach=False)
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
            optimizer._init_group(optimizer.param_groups[0], [], [], [], [], [], [])
            assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)
        else:
            assert run.optimizer_bytes == run.optimizer_scalar_bytes == run.gradient_bytes == 0


@pytest.mark.torch
@pytest.mark.slow
@settings(max_examples=100_000, deadline=None)
@given(shape=SHAPES, world=st.integers(1, 4096), data=st.data())
def test_rows_of_a_hundred_thousand_shapes(shape: tuple[int, ...], world: int, data: st.DataObject) -> None:
    import torch
    from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

    rank = data.draw(st.integers(0, world - 1))
    chunks = _chunk_with_empty(torch.empty(shape, device="meta"), world, dim=0)
    run = run_of(per_rank(Request(model_of(Parameter("w", shape)), Layout(1, world))), rank)
    assert (run.parameters, run.stored_parameters) == (chunks[rank].numel(), chunks[0].numel())


@pytest.mark.torch
def test_what_fully_shard_refuses() -> None:
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    with fake_world(Layout(1, 4), 0) as mesh:
        scalar = nn.Module()
        scalar.scale = nn.Parameter(torch.ones(()))
        with pytest.raises(ValueError, match="doesn't support scalar parameters"):
            fully_shard(scalar, mesh=mesh)
        uneven = nn.Linear(6, 8, bias=False)
        with pytest.raises(NotImplementedError, match="does not support uneven sharding on dim 1"):
            fully_shard(uneven, mesh=mesh, shard_placement_fn=lambda p: Shard(1))
    with pytest.raises(UnusableInput, match="doesn't support scalar parameters"):
        per_rank(Request(model_of(Parameter("scale", ())), Layout(1, 4)))
    with pytest.raises(UnusableInput, match="does not support uneven sharding on dim 1"):
        per_rank(Request(model_of(Parameter("w", (8, 6))), Layout(1, 4), placements={"w": 1}))
    # DDP takes both.
    assert per_rank(Request(model_of(Parameter("scale", ())), Layout(4, 1), "none"))[0].parameters == 1


def test_nonsense_is_refused() -> None:
    for request in (
        Request(model_of(Parameter("w", (8, 6))), Layout(1, 4), placements={"w": 2}),
        Request(model_of(Parameter("w", (8, 6))), Layout(1, 4), placements={"w": -3}),
        Request(model_of(Parameter("w", (8, 6))), Layout(1, 0)),
        Request(model_of(Parameter("w", (8, 6))), Layout(1, 4), "zero3"),
    ):
        with pytest.raises(UnusableInput):
            per_rank(request)


def test_negative_dims_and_callables() -> None:
    # (8, 6) on dim 1 over 3 ranks: 8 x 2 elements; over dim 0: ceil(8 / 3) = 3 rows of 6.
    model = model_of(Parameter("w", (8, 6)))
    for placements in ({"w": -1}, {"w": 1}, lambda parameter: 1):
        (run,) = per_rank(Request(model, Layout(1, 3), placements=placements))
        assert (run.parameters, run.stored_parameters) == (16, 16)
    runs = per_rank(Request(model, Layout(1, 3), placements=lambda parameter: None))
    assert [(run.first_rank, run.last_rank, run.parameters) for run in runs] == [(0, 1, 18), (2, 2, 12)]


def test_unknown_dtypes_and_optimizers_are_not_guessed() -> None:
    model = model_of(Parameter("w", (8, 6)), Parameter("frozen", (8,), requires_grad=False))
    (run,) = per_rank(Request(model, Layout(1, 4), optimizer="adamw"))
    assert run.parameters == 14
    assert (run.parameter_bytes, run.gradient_bytes, run.optimizer_bytes) == (None, None, None)
    assert (run.device_bytes, run.host_bytes) == (None, None)
    (run,) = per_rank(Request(model, Layout(1, 4), param_dtype="float32"))
    assert (run.parameter_bytes, run.gradient_bytes) == (56, 48)
    assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == (None, None)
    (run,) = per_rank(Request(model, Layout(1, 4), param_dtype="float32", optimizer="adamw8bit"))
    assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == (None, None)


def test_integers_keep_their_dtype() -> None:
    # Module.to(torch.float32) leaves an int8 tensor as it is.
    model = model_of(Parameter("q", (8, 6), "int8", False), Parameter("s", (8,), "bfloat16"))
    (run,) = per_rank(Request(model, Layout(1, 4), param_dtype="float32"))
    assert run.parameter_bytes == 12 * 1 + 2 * 4


def test_stated_size_gives_bounds_only() -> None:
    model = model_of(stated_size=7_241_732_096)
    request = Request(model, Layout(1, 48), param_dtype="bfloat16", optimizer="adamw")
    assert per_rank(request) == ()
    facts = {fact.id: fact.value for fact in lower_bounds(request)}
    # 7,241,732,096 / 48 = 150,869,418.67
    assert facts == {
        "accounting.parameters": 7_241_732_096,
        "accounting.stored_parameters_at_least": 150_869_419,
        "accounting.parameter_bytes_at_least": 301_738_838,
        "accounting.gradient_bytes_at_least": 301_738_838,
        "accounting.optimizer_bytes_at_least": 603_477_676,
    }
    assert all("lower bound" in fact.formula for fact in lower_bounds(request)[1:])
    assert lower_bounds(request._replace(model=model_of(Parameter("w", (8, 6))))) == ()
