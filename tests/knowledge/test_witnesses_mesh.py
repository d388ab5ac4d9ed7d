"""Witnesses of claims on device meshes, groups and tensor parallelism."""

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("last_rank")]

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from witness_tools import Log, gloo, sizes  # noqa: E402

WORLD = 8


@pytest.fixture
def mesh():
    return init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))


def ranks_of(mesh, dimension):
    return dist.get_process_group_ranks(mesh.get_group(dimension))


def test_groups_of_two_hosts(mesh):
    assert mesh.mesh.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert ranks_of(mesh, 0) == [3, 7]  # across the hosts, for rank 7
    assert ranks_of(mesh, 1) == [4, 5, 6, 7]  # within its host


def test_a_group_for_each_dimension():
    cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("a", "b", "c"))
    assert [ranks_of(cube, name) for name in "abc"] == [[3, 7], [5, 7], [6, 7]]
    assert len({cube.get_group(name).group_name for name in "abc"}) == 3


def test_names_of_dimensions():
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "b"))
    assert mesh.shape == (2, 4) and mesh.mesh.flatten().tolist() == list(range(WORLD))
    with pytest.raises(RuntimeError, match="unique"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "a"))
    with pytest.raises(RuntimeError, match="same length"):
        init_device_mesh("cpu", (2, 4), mesh_dim_names=("a",))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, 32, bias=False), nn.Linear(32, 16, bias=False), nn.LayerNorm(16)

    def forward(self, x):
        return self.down(self.up(x).relu())


def test_tensor_parallelism_takes_one_dimension(mesh):
    with pytest.raises(ValueError, match="ndim: 2"):
        parallelize_module(Block(), mesh, {"up": ColwiseParallel()})
    parallelize_module(Block(), mesh["tp"], {"up": ColwiseParallel()})


def test_tensor_parallel_plan(mesh):
    block = parallelize_module(Block(), mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    assert block.up.weight.placements == (Shard(0),) and block.up.weight.to_local().shape == (8, 16)
    assert block.down.weight.placements == (Shard(1),) and block.down.weight.to_local().shape == (16, 8)
    assert not isinstance(block.norm.weight, DTensor)  # not in the plan


def test_colwise(mesh):
    linear = parallelize_module(nn.Linear(16, 32), mesh["tp"], ColwiseParallel())
    assert linear.weight.to_local().shape == (8, 16) and linear.bias.to_local().shape == (8,)
    assert linear(torch.ones(2, 16)).shape == (2, 8)
    whole = parallelize_module(nn.Linear(16, 32), mesh["tp"], ColwiseParallel(output_layouts=Replicate()))
    assert whole(torch.ones(2, 16)).shape == (2, 32)
    embedding = parallelize_module(nn.Embedding(10, 32), mesh["tp"], ColwiseParallel())
    assert embedding.weight.to_local().shape == (10, 8)  # its columns
    assert embedding(torch.zeros(3, dtype=torch.long)).shape == (3, 8)


def test_sequence_parallel_replicates(mesh):
    for module in (nn.LayerNorm(16), nn.RMSNorm(16)):
        norm = parallelize_module(module, mesh["tp"], SequenceParallel())
        assert norm.weight.placements == (Replicate(),)
        out = norm(torch.ones(2, 3, 16))  # this rank's part of twelve positions
        assert out.placements == (Shard(1),) and out.shape == (2, 12, 16) and out.to_local().shape == (2, 3, 16)
    dropout = parallelize_module(nn.Dropout(), mesh["tp"], SequenceParallel()).eval()
    assert dropout(torch.ones(2, 3, 16)).placements == (Shard(1),)


def test_tensor_parallelism_before_fsdp(mesh):
    linear = parallelize_module(nn.Linear(16, 32, bias=False), mesh["tp"], ColwiseParallel())
    fully_shard(linear, mesh=mesh["dp"])
    assert linear.weight.device_mesh.ndim == 2 and linear.weight.to_local().shape == (4, 16)
    with Log() as log:
        linear(torch.ones(2, 16))
        assert sizes(log.take(), "gather") == [("gather", 8 * 16)]
    with pytest.raises(ValueError, match="to a different device mesh"):
        parallelize_module(fully_shard(nn.Linear(16, 32, bias=False), mesh=mesh["dp"]), mesh["tp"], ColwiseParallel())
    other = parallelize_module(nn.Linear(16, 32, bias=False), mesh["tp"], ColwiseParallel())
    with pytest.raises(RuntimeError, match="overlapping meshes"):
        fully_shard(other, mesh=init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",)))


def test_reshard_to_fewer_ranks_under_tensor_parallelism():
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
    linear = parallelize_module(nn.Linear(16, 32, bias=False), mesh["tp"], ColwiseParallel())
    with pytest.raises(NotImplementedError, match="not supported for"):
        fully_shard(linear, mesh=mesh["dp"], reshard_after_forward=2)
        linear(torch.ones(2, 16))


# Real processes


def test_mesh_makes_the_process_group():
    def body(rank):
        if dist.is_initialized():
            dist.destroy_process_group()
        mesh = init_device_mesh("cpu", (2,))
        return dist.is_initialized(), dist.get_world_size(), mesh.get_rank()

    assert gloo.run(2, body) == [(True, 2, 0), (True, 2, 1)]


@pytest.mark.parametrize("wrong", ["", "a rank stays away", "another order"])
def test_new_group_needs_everyone(wrong):
    def body(rank):
        if dist.is_initialized():
            dist.destroy_process_group()
        gloo.init()
        members = [[0, 1], [0, 2]]
        if rank == 2 and wrong:
            members = [[0, 2]] if wrong == "a rank stays away" else members[::-1]
        groups = {tuple(ranks): dist.new_group(ranks) for ranks in members}
        numbers = torch.ones(1)
        if rank != 1:
            dist.all_reduce(numbers, group=groups[0, 2])
        return numbers.item()

    if wrong:
        with pytest.raises(gloo.RankFailed):
            gloo.run(3, body, timeout=3)
    else:
        assert gloo.run(3, body) == [2.0, 1.0, 2.0]


def test_different_meshes_hang():
    def body(rank):
        if dist.is_initialized():
            dist.destroy_process_group()
        gloo.init()
        mesh = init_device_mesh("cpu", (2, 2) if rank else (4,))
        numbers = torch.ones(1)
        dist.all_reduce(numbers, group=mesh.get_group(0))
        return numbers.item()

    with pytest.raises(gloo.RankFailed, match="no result within"):
        gloo.run(4, body, timeout=3)
