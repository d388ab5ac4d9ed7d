"""Claims about DeviceMesh and tensor parallelism, run on PyTorch 2.13: on a fake process group of eight ranks seen from rank 5."""

import inspect

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from witness_cases import RANK, WORLD, Mlp, collectives, warned  # noqa: E402
from witness_tools import on_gloo  # noqa: E402


def test_mesh_groups_and_slices(fake, grid):
    ranks = dist.get_process_group_ranks
    assert ranks(grid["tp"].get_group()) == ranks(grid.get_group("tp")) == [4, 5, 6, 7]  # the node of rank 5
    assert ranks(grid["dp"].get_group()) == ranks(grid.get_group(0)) == [1, 5]  # its peers on both nodes
    assert grid["tp"].get_group() is grid.get_group("tp")
    assert (grid.get_local_rank("dp"), grid.get_local_rank("tp")) == (1, 1)
    for call in (grid.get_group, grid.get_local_rank):
        with pytest.raises(RuntimeError, match="needs to be specified"):
            call()
    cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    assert cube["dp", "cp"].mesh.tolist() == [[1, 3], [5, 7]]
    assert cube["dp", "cp"]["cp"].mesh.tolist() == [5, 7]


def test_mesh_slices_refused(fake):
    cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    with pytest.raises(KeyError, match="ascending order"):
        cube["cp", "dp"]
    with pytest.raises(RuntimeError, match="without mesh_dim_names"):
        DeviceMesh("cpu", torch.arange(8).view(2, 4))["dp"]
    with pytest.raises(RuntimeError, match="must be unique"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "dp"))
    with pytest.raises(RuntimeError, match="should have same length"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp",))


def test_mesh_flatten(fake):
    cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    flat = cube["dp", "cp"]._flatten()
    assert flat.mesh_dim_names == ("dp_cp",) and flat.mesh.tolist() == [1, 3, 5, 7]
    assert dist.get_process_group_ranks(flat.get_group()) == [1, 3, 5, 7]
    assert cube["dp", "cp"]._flatten() is flat
    _, said = warned(lambda: cube["dp_cp"])
    assert any("will be deprecated" in text for text in said)
    for taken in ("tp", "dp_cp"):
        with pytest.raises(ValueError):
            cube["cp", "tp"]._flatten(taken)


def test_mesh_unflatten(fake):
    named = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("world",))
    split = named._unflatten("world", (2, 4), ("dp", "tp"))
    assert split.mesh_dim_names == ("dp", "tp") and split["tp"].mesh.tolist() == [4, 5, 6, 7]
    with pytest.raises(TypeError):
        fake._unflatten(0, (2, 4), ("dp", "tp"))


def test_mesh_from_group(grid):
    groups = [grid.get_group("dp"), grid.get_group("tp")]
    one = DeviceMesh.from_group(groups[1], "cpu")
    assert one.ndim == 1 and one.mesh.tolist() == [4, 5, 6, 7]
    layout = torch.arange(8).view(2, 4)
    with pytest.raises(ValueError, match="Must pass mesh_dim_names"):
        DeviceMesh.from_group(groups, "cpu", mesh=layout)
    two = DeviceMesh.from_group(groups, "cpu", mesh=layout, mesh_dim_names=("dp", "tp"))
    assert two.get_group("tp") is groups[1] and two.ndim == 2


def test_mesh_backend_override(fake):
    assert "backend_override" in inspect.signature(init_device_mesh).parameters
    with pytest.raises(RuntimeError, match="invalid keys in backend_override"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"), backend_override={"pp": "fake"})


def test_mesh_context(fake):
    with pytest.raises(RuntimeError, match="No device mesh is currently active"):
        torch.distributed.tensor.zeros(16, 4)
    with fake:
        assert torch.distributed.tensor.zeros(16, 4, placements=[Shard(0)]).to_local().shape == (2, 4)


PLAN = {"embed": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}


def test_tensor_parallel_placements(grid):
    model = parallelize_module(Mlp(), grid["tp"], PLAN)
    placements = {name: parameter.placements for name, parameter in model.named_parameters()}
    assert placements == {
        "embed.weight": (Shard(1),),
        "up.weight": (Shard(0),),
        "up.bias": (Shard(0),),
        "down.weight": (Shard(1),),
        "down.bias": (Replicate(),),
    }
    assert parallelize_module(nn.Embedding(16, 16), grid["tp"], RowwiseParallel()).weight.placements == (Shard(0),)
    out = model.up(torch.ones(2, 16))
    assert not isinstance(out, DTensor) and out.shape == (2, 8)  # a quarter of the 32 columns
    assert collectives(lambda: model(torch.ones(2, 16))) == {"all_reduce": 1}


def test_tensor_parallel_refused(grid):
    for style in (ColwiseParallel(), RowwiseParallel()):
        with pytest.raises(NotImplementedError, match=r"only support nn.Linear and nn.Embedding"):
            parallelize_module(nn.Conv1d(2, 2, 1), grid["tp"], style)


def test_parallelize_plans(grid):
    tp = grid["tp"]
    model, said = warned(lambda: parallelize_module(Mlp(), tp, {"no_such": ColwiseParallel()}))
    assert any("could not be resolved" in text for text in said) and not isinstance(model.up.weight, DTensor)
    model, said = warned(lambda: parallelize_module(Mlp(), tp))
    assert any("will do nothing" in text for text in said) and not isinstance(model.up.weight, DTensor)
    assert isinstance(parallelize_module(nn.Linear(16, 16), tp, {"": ColwiseParallel()}).weight, DTensor)
    layers = nn.ModuleDict({"layer_a": nn.Linear(16, 16), "layer_b": nn.Linear(16, 16)})
    parallelize_module(layers, tp, {"layer_*": ColwiseParallel()})
    assert all(isinstance(layer.weight, DTensor) for layer in layers.values())


def test_sequence_parallel(grid):
    norm = parallelize_module(nn.LayerNorm(16), grid["tp"], SequenceParallel())
    out = norm(torch.ones(2, 3, 16))  # this rank's three positions of twelve
    assert norm.weight.placements == (Replicate(),)
    assert isinstance(out, DTensor) and out.placements == (Shard(1),) and out.shape == (2, 12, 16)


def test_prepare_module_input(grid):
    seen = []
    layer = parallelize_module(
        nn.Identity(), grid["tp"], PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
    )
    layer.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    layer(torch.ones(2, 16))
    assert seen[0].placements == (Replicate(),) and seen[0].shape == (8, 16)


def test_prepare_module_output(grid):
    split = {"output_layouts": Replicate(), "desired_output_layouts": Shard(0)}
    layer = parallelize_module(nn.Linear(16, 16), grid["tp"], PrepareModuleOutput(**split))
    out = layer(torch.ones(8, 16))
    assert type(out) is torch.Tensor and out.shape == (2, 16)  # this rank's part
    both = PrepareModuleInputOutput(input_layouts=Shard(0), desired_input_layouts=Replicate(), **split)
    seen = []
    same = parallelize_module(nn.Identity(), grid["tp"], both)
    same.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    out = same(torch.ones(2, 16))
    assert isinstance(seen[0], DTensor) and type(out) is torch.Tensor and out.shape == (2, 16)


def test_pipeline_microbatches(fake):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    def schedule(microbatches):
        stage = PipelineStage(nn.Linear(4, 4), RANK, WORLD, torch.device("cpu"))
        return Schedule1F1B(stage, n_microbatches=microbatches, loss_fn=F.mse_loss)

    assert schedule(WORLD).scale_grads is True
    with pytest.raises(ValueError, match="Number of microbatches"):
        schedule(WORLD - 1)


def sources(mesh):
    result = {}
    for name, style, module, options in (
        ("first", ColwiseParallel(), nn.Linear(8, 8), {}),
        ("own", ColwiseParallel(), nn.Linear(8, 8), {"src_data_rank": None}),
        ("norm", SequenceParallel(), nn.LayerNorm(8), {}),
    ):
        nn.init.constant_(module.weight, float(dist.get_rank()))
        result[name] = parallelize_module(module, mesh, style, **options).weight.to_local().unique().tolist()
    return result


def test_tensor_parallel_source(ranks):
    seen = ranks["sources"]
    assert [rank["first"] for rank in seen] == [[0.0]] * 4
    assert [rank["own"] for rank in seen] == [rank["norm"] for rank in seen] == [[0.0], [1.0], [2.0], [3.0]]


def cross_entropy(mesh, placements, reduction="mean"):
    logits = distribute_tensor(torch.ones(4, 16, requires_grad=True), mesh, placements)
    target = distribute_tensor(torch.zeros(4, dtype=torch.long), mesh, [*placements[:-1], Replicate()])
    with loss_parallel():
        return F.cross_entropy(logits, target, reduction=reduction)


def parallel_loss(mesh):
    torch.manual_seed(0)
    logits, target = torch.randn(4, 16), torch.tensor([1, 5, 9, 15])
    sharded = distribute_tensor(logits.clone().requires_grad_(), mesh, [Shard(1)])
    with loss_parallel():
        loss = F.cross_entropy(sharded, distribute_tensor(target, mesh, [Replicate()]))
        loss.backward()
    return (loss.full_tensor().item(), F.cross_entropy(logits, target).item())


@pytest.fixture(scope="module")
def ranks():
    return on_gloo(4, parallel_loss, sources)


def test_loss_parallel(grid, ranks):
    assert all(rank == pytest.approx((rank[1], rank[1]), rel=1e-5) for rank in ranks["parallel_loss"])
    counted = collectives(lambda: cross_entropy(grid["tp"], [Shard(1)]))
    assert "all_gather_into_tensor" not in counted and counted["all_reduce"] >= 1
    assert cross_entropy(grid, [Shard(0), Shard(1)], "sum").placements == (Partial("sum"), Replicate())
    with pytest.raises(NotImplementedError, match="reduction='mean' is only supported on one-dimensional"):
        cross_entropy(grid, [Shard(0), Shard(1)])


def test_tensor_parallel_with_fsdp2(grid):
    model = parallelize_module(Mlp(), grid["tp"], PLAN)
    fully_shard(model, mesh=grid["dp"])
    assert model.up.weight.device_mesh.mesh_dim_names == ("dp", "tp")
    first, second = model.up.weight.placements  # dimension 0 twice
    assert type(first).__name__ == "_StridedShard" and first.dim == 0 and second == Shard(0)
    assert model.down.weight.placements == (Shard(0), Shard(1))


def test_pipeline_schedules():
    from torch.distributed import pipelining

    for name in ("ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS"):
        assert inspect.isclass(getattr(pipelining, name))
    assert inspect.isclass(pipelining.ScheduleInterleavedZeroBubble)
