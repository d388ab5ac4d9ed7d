"""TP before FSDP: the real parallelize_module on one mesh dim, then the real fully_shard on the others."""

from __future__ import annotations

from typing import Any

import pytest

from shardguide.accounting import Layout, Request, groups, per_rank
from shardguide.guidance.errors import UnusableInput

from .oracle import describe, dp_mesh, fake_world, held, on_meta, run_of, shard

pytestmark = pytest.mark.torch

UNITS = [(("layers.0",), "block"), (("layers.1",), "block")]


def make(width: int, inner: int, vocabulary: int, bias: bool) -> Any:
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(width, inner, bias=bias)
            self.down = nn.Linear(inner, width, bias=bias)
            self.norm = nn.LayerNorm(width)

    module = nn.Module()
    module.embed = nn.Embedding(vocabulary, width)
    module.layers = nn.ModuleList([Layer() for _ in range(2)])
    module.head = nn.Linear(width, vocabulary, bias=bias)
    return module


PLAN = (
    ("embed", "embedding_rowwise"),
    ("layers.*.up", "colwise"),
    ("layers.*.down", "rowwise"),
    ("head", "colwise_gather_output"),
)


def parallelize(module: Any, mesh: Any) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan: dict[str, Any] = {"embed": RowwiseParallel(), "head": ColwiseParallel()}
    for number in range(2):
        plan[f"layers.{number}.up"] = ColwiseParallel()
        plan[f"layers.{number}.down"] = RowwiseParallel()
    parallelize_module(module, mesh, plan)


# Sizes that TP divides, that it does not, and that leave TP ranks empty (width 3 over 4).
SIZES = [(64, 96, 128, False), (65, 93, 131, True), (3, 7, 5, True), (9, 2, 101, True)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("layout", [Layout(1, 2, 2), Layout(1, 3, 4), Layout(2, 2, 4), Layout(3, 5, 2)], ids=str)
def test_every_rank(layout: Layout, sizes: tuple[int, int, int, bool]) -> None:
    model = describe(on_meta(lambda: make(*sizes)), UNITS, tp_plan=PLAN)
    runs = per_rank(Request(model, layout))
    for rank in range(layout.world):
        module = on_meta(lambda: make(*sizes))
        with fake_world(layout, rank) as mesh:
            parallelize(module, mesh["tp"])
            shard(module, UNITS, dp_mesh(mesh, layout))
            run = run_of(runs, rank)
            assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)


def test_ranks_are_laid_out_as_init_device_mesh_does() -> None:
    layout = Layout(2, 3, 4)
    for rank in range(layout.world):
        with fake_world(layout, rank) as mesh:
            assert list(layout.coordinates(rank)) == list(mesh.get_coordinate())
        assert layout.rank(*layout.coordinates(rank)) == rank


def test_llama_with_its_own_plan() -> None:
    import torch
    import transformers
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    from shardguide.knowledge.families import index

    from .zoo import LLAMA_3_1_8B

    values = LLAMA_3_1_8B | {"num_hidden_layers": 2}
    model = index.build(values, "transformers5")
    config = transformers.AutoConfig.for_model("llama", **{k: v for k, v in values.items() if k != "model_type"})
    layout = Layout(1, 6, 8)
    for rank in (0, 17, layout.world - 1):
        module = on_meta(lambda: transformers.LlamaForCausalLM._from_config(config, dtype=torch.float32))
        plan: dict[str, Any] = {}
        for pattern, style in model.tp_plan:
            for number in range(2):
                plan[pattern.replace("*", str(number))] = ColwiseParallel() if "col" in style else RowwiseParallel()
        units = [(unit.modules, unit.role) for unit in model.units]
        with fake_world(layout, rank) as mesh:
            parallelize_module(module, mesh["tp"], plan)
            shard(module, units, dp_mesh(mesh, layout))
            run = run_of(per_rank(Request(model, layout, param_dtype="float32")), rank)
            assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)
    first = groups(Request(model, layout, param_dtype="float32"))[0]
    assert first.parameters < 218_112_000  # one layer of 8B, unsharded


def test_packed_projections_split_each_half() -> None:
    import torch
    from torch.distributed.tensor import distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard

    from shardguide.accounting.tensor_parallel import local_shape, split

    shape = (24, 10)
    dim, pieces = split("mlp.gate_up_proj", shape, "packed_colwise", 4)
    assert (dim, pieces) == (0, 2)
    with fake_world(Layout(1, 1, 4), 3) as mesh:
        tensor = distribute_tensor(torch.empty(shape, device="meta"), mesh["tp"], [_StridedShard(0, split_factor=2)])
        assert local_shape(shape, dim, 4, 3) == tuple(tensor.to_local().shape)
    with pytest.raises(UnusableInput, match="does not split evenly"):
        split("mlp.gate_up_proj", (26, 10), "packed_colwise", 4)
    with pytest.raises(UnusableInput, match="tensor-parallel style"):
        split("mlp.gate_up_proj", (26, 10), "sideways", 4)
