"""Claims about DTensor, run on PyTorch 2.13: on a fake process group of eight ranks seen from rank 5, and on four real processes."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor  # noqa: E402
from torch.distributed.tensor.experimental import implicit_replication  # noqa: E402
from witness_cases import RANK, collectives, warned  # noqa: E402
from witness_tools import on_gloo  # noqa: E402


def test_placements(fake):
    whole = torch.arange(32.0).view(16, 2)
    assert distribute_tensor(whole, fake, [Shard(0)]).to_local().shape == (2, 2)
    assert distribute_tensor(whole, fake, [Replicate()]).to_local().shape == (16, 2)
    sharded = distribute_tensor(whole, fake, [Shard(0)])
    assert (sharded.T @ sharded).placements == (Partial("sum"),)  # every rank has a part of the sum


def test_mixed_tensor_and_dtensor(fake):
    sharded = distribute_tensor(torch.ones(16, 4), fake, [Shard(0)])
    with pytest.raises(RuntimeError, match="got mixed torch"):
        sharded + torch.ones(16, 4)
    result, said = warned(lambda: sharded + torch.tensor(1.0))
    assert result.placements == (Shard(0),) and not said
    _, said = warned(lambda: sharded + torch.ones(1))
    assert any("numel=1 and ndim!=0" in text for text in said)
    with implicit_replication():
        assert (sharded + torch.ones(16, 4)).placements == (Shard(0),)


def test_redistribute_collectives(fake):
    sharded = distribute_tensor(torch.ones(16, 8), fake, [Shard(0)])
    partial = DTensor.from_local(torch.ones(16, 8), fake, [Partial()])
    replicated = DTensor.from_local(torch.ones(16, 8), fake, [Replicate()])
    assert collectives(lambda: sharded.redistribute(placements=[Replicate()])) == {"all_gather_into_tensor": 1}
    assert collectives(lambda: partial.redistribute(placements=[Replicate()])) == {"all_reduce": 1}
    assert collectives(lambda: partial.redistribute(placements=[Shard(0)])) == {"reduce_scatter_tensor": 1}
    assert collectives(lambda: replicated.redistribute(placements=[Shard(0)])) == {}
    assert collectives(sharded.to_local) == {}


def test_redistribute_dtype(fake):
    sharded = distribute_tensor(torch.ones(16, 8), fake, [Shard(0)])
    assert sharded.redistribute(placements=[Replicate()], forward_dtype=torch.bfloat16).dtype == torch.bfloat16
    assert sharded.redistribute(placements=[Replicate()]).dtype == torch.float32


def test_asynchronous_local_tensor(fake):
    sharded = distribute_tensor(torch.ones(16, 8), fake, [Shard(0)])
    local = sharded.redistribute(placements=[Replicate()], async_op=True).to_local()
    assert type(local).__name__ == "AsyncCollectiveTensor"
    assert type(local.wait()) is torch.Tensor


def test_distribute_tensor_refuses(fake, grid):
    sharded = distribute_tensor(torch.ones(16, 4), fake, [Shard(0)])
    leaf = torch.ones(16, requires_grad=True)
    refused = [
        (RuntimeError, "leaf tensors", lambda: distribute_tensor(leaf * 2, fake, [Shard(0)])),
        (ValueError, "same length as", lambda: distribute_tensor(torch.ones(16), grid, [Shard(0)])),
        (ValueError, "call `redistribute`", lambda: distribute_tensor(sharded, fake, [Replicate()])),
        (ValueError, "different device mesh", lambda: distribute_tensor(sharded, grid, [Replicate(), Replicate()])),
        (RuntimeError, "only accepts torch.Tensor", lambda: DTensor.from_local(sharded, fake, [Shard(0)])),
        (NotImplementedError, "Cross device mesh", lambda: sharded.redistribute(grid, [Replicate(), Replicate()])),
        (RuntimeError, "internal use only", lambda: sharded.redistribute(placements=[Partial()])),
        (
            ValueError,
            "Mixed Partial",
            lambda: DTensor.from_local(torch.ones(4), grid, [Partial("sum"), Partial("max")]),
        ),
    ]
    for error, words, call in refused:
        with pytest.raises(error, match=words):
            call()


def test_operator_without_strategy(fake):
    sharded = distribute_tensor(torch.ones(16, 4), fake, [Shard(0)])
    with pytest.raises(NotImplementedError, match="does not have a sharding strategy registered"):
        torch._fused_sgd_(
            [sharded], [sharded.clone()], [], weight_decay=0, momentum=0, lr=0.1, dampening=0,
            nesterov=False, maximize=False, is_first_step=True,
        )  # fmt: skip


def test_in_place_operation(fake):
    norm = distribute_tensor(torch.ones(16, 4), fake, [Shard(0)]).norm()
    assert norm.placements[0].is_partial()
    with pytest.raises(RuntimeError, match="in-place operations that require placement changes are not supported"):
        norm.pow_(2)


def test_random_operators_on_the_cpu(fake):
    weight = distribute_tensor(torch.ones(16, 4), fake, [Shard(0)])
    _, said = warned(lambda: nn.init.uniform_(weight))
    assert any("may not have complete support on cpu device mesh" in text for text in said)


def test_dtensor_import_paths():
    import torch.distributed._tensor as old

    assert old.DTensor is DTensor and old.distribute_tensor is distribute_tensor


def test_rank_outside_the_mesh(fake):
    half = DeviceMesh("cpu", [0, 1, 2, 3])
    assert half.get_coordinate() is None and fake.get_coordinate() == (RANK,)
    assert distribute_tensor(torch.ones(8), half, [Shard(0)]).to_local().numel() == 0


def test_distribute_module(fake):
    model = distribute_module(nn.Linear(4, 4), fake)
    assert model.weight.placements == (Replicate(),)
    with pytest.raises(RuntimeError, match="should only be called once"):
        distribute_module(model, fake)

    def split(name, module, mesh):
        module.weight = nn.Parameter(distribute_tensor(module.weight.detach(), mesh, [Shard(0)]))

    assert distribute_module(nn.Linear(4, 16), fake, split).weight.placements == (Shard(0),)


def test_partial_is_not_saved(fake):
    partial = DTensor.from_local(torch.ones(4), fake, [Partial()])
    with pytest.raises(ValueError, match="not supported for DTensor with partial placements"):
        partial.__create_write_items__("x", partial)


def distribute(mesh):
    mine = torch.full((4,), float(dist.get_rank()))
    return {
        "first": distribute_tensor(mine, mesh, [Shard(0)]).to_local().tolist(),
        "own": distribute_tensor(mine, mesh, [Shard(0)], src_data_rank=None).to_local().tolist(),
        "own_events": collectives(lambda: distribute_tensor(mine, mesh, [Shard(0)], src_data_rank=None)),
    }


def uneven(mesh):
    sharded = distribute_tensor(torch.arange(10.0), mesh, [Shard(0)])
    local = sharded.to_local()
    told = DTensor.from_local(local, mesh, [Shard(0)], shape=torch.Size([10]), stride=(1,))
    return {
        "local": local.numel(),
        "guessed": tuple(DTensor.from_local(local, mesh, [Shard(0)]).shape),
        "told": told.full_tensor().tolist(),
    }


def local_tensors(mesh):
    mine = torch.full((2,), float(dist.get_rank()))
    return {
        "unchecked": DTensor.from_local(mine, mesh, [Replicate()]).to_local().tolist(),
        "checked": DTensor.from_local(mine, mesh, [Replicate()], run_check=True).to_local().tolist(),
        "silent": collectives(lambda: DTensor.from_local(mine, mesh, [Replicate()])),
        "default": str(DTensor.from_local(mine, mesh).placements),
    }


def whole(mesh):
    mine = torch.full((1,), float(dist.get_rank()))
    leaf = torch.ones(2, requires_grad=True)
    partial = DTensor.from_local(leaf, mesh, [Partial()])
    partial.full_tensor().sum().backward()
    return {"full": DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor().tolist(), "gradient": leaf.grad.tolist()}


@pytest.fixture(scope="module")
def ranks():
    return on_gloo(4, distribute, uneven, local_tensors, whole)


def test_distribute_tensor_source(ranks):
    seen = ranks["distribute"]
    assert [rank["first"] for rank in seen] == [[0.0]] * 4
    assert [rank["own"] for rank in seen] == [[0.0], [1.0], [2.0], [3.0]]
    assert all(rank["own_events"] == {} for rank in seen)


def test_uneven_shards(ranks):
    seen = ranks["uneven"]
    assert [rank["local"] for rank in seen] == [3, 3, 3, 1]
    assert [rank["guessed"] for rank in seen] == [(12,), (12,), (12,), (4,)]
    assert all(rank["told"] == list(range(10)) for rank in seen)


def test_from_local(ranks):
    seen = ranks["local_tensors"]
    assert [rank["unchecked"][0] for rank in seen] == [0, 1, 2, 3]
    assert [rank["checked"][0] for rank in seen] == [0, 0, 0, 0]
    assert all(rank["silent"] == {} and rank["default"] == "(Replicate(),)" for rank in seen)


def test_full_tensor(ranks):
    assert all(rank == {"full": [0, 1, 2, 3], "gradient": [1, 1]} for rank in ranks["whole"])
