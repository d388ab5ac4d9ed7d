"""Mistakes that the rules call errors, made for real on PyTorch 2.13.0: each raises, or does what its message says."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def group():
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))


def mesh(*names: str):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (1,) * max(1, len(names)), mesh_dim_names=names or None)


def sharded():
    from torch.distributed.fsdp import fully_shard

    made = model()
    for part in made:
        fully_shard(part, mesh=mesh("dp"))
    return fully_shard(made, mesh=mesh("dp"))


def raises(kind: type[Exception], words: str, call) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_FSD104_device_index_is_a_context_manager() -> None:
    made = torch.accelerator.device_index(None)
    assert hasattr(made, "__enter__") and hasattr(made, "__exit__")


def test_FSD108_tcp_without_a_rank() -> None:
    import torch.distributed as dist

    raises(
        ValueError, "rank parameter missing", lambda: dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1")
    )


def test_FSD110_FSD111_FSD113(group) -> None:
    import torch.distributed as dist

    raises(ValueError, "twice", lambda: dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1))
    raises(TypeError, "timedelta", lambda: dist.new_group([0], timeout=60))


def test_FSD113_before_init() -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        raises(ValueError, "not been initialized", dist.get_rank)


def test_FSD204_one_tensor_many_times() -> None:
    parts = [torch.zeros(2)] * 3
    parts[0].fill_(1)
    assert all(part.sum() == 2 for part in parts)


def test_FSD205_a_synchronous_collective_returns_none(group) -> None:
    import torch.distributed as dist

    for call in (
        lambda: dist.all_reduce(torch.ones(1)),
        lambda: dist.broadcast(torch.ones(1), 0),
        lambda: dist.reduce(torch.ones(1), 0),
        lambda: dist.all_gather([torch.ones(1)], torch.ones(1)),
    ):
        assert call() is None


def test_FSD401_the_optimizer_never_changes_the_model(group) -> None:
    from torch.distributed.fsdp import fully_shard

    made = model()
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0)
    for part in made:
        fully_shard(part, mesh=mesh("dp"))
    fully_shard(made, mesh=mesh("dp"))
    before = [parameter.full_tensor().clone() for parameter in made.parameters()]
    made(torch.ones(2, 4)).sum().backward()
    assert all(p.grad is None for one in optimizer.param_groups for p in one["params"])
    optimizer.step()
    assert all(torch.equal(a, p.full_tensor()) for a, p in zip(before, made.parameters()))


def test_FSD402_the_whole_before_its_parts(group) -> None:
    from torch.distributed.fsdp import fully_shard

    made = fully_shard(model(), mesh=mesh("dp"))
    fully_shard(made[0], mesh=mesh("dp"))  # with a mesh without names this raises TypeError already
    raises(RuntimeError, "mixed torch.Tensor and DTensor", lambda: made(torch.ones(1, 4)))


def test_FSD404_FSD406_FSD410_FSD418_fully_shard_refuses(group) -> None:
    from torch.distributed.fsdp import fully_shard

    layers = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    raises(ValueError, "forward", lambda: fully_shard(layers, mesh=mesh("dp")))
    once = sharded()
    raises(AssertionError, "once", lambda: fully_shard(once, mesh=mesh("dp")))
    raises(AssertionError, "deepcopy", lambda: copy.deepcopy(sharded()))
    from torch.distributed.device_mesh import init_device_mesh

    raises(AssertionError, "mesh_dim_names", lambda: fully_shard(model(), mesh=init_device_mesh("cpu", (1, 1))))


def test_FSD408_FSD409_FSD411_methods_and_arguments_of_FSDP1(group) -> None:
    from torch.distributed.fsdp import fully_shard

    made = sharded()
    assert not hasattr(made, "no_sync") and not hasattr(made, "clip_grad_norm_")
    raises(TypeError, "use_orig_params", lambda: fully_shard(model(), mesh=mesh("dp"), use_orig_params=True))


def test_FSD405_forward_goes_past_the_hooks(group) -> None:
    from torch.distributed.fsdp import fully_shard

    made = fully_shard(torch.nn.Linear(4, 4), mesh=mesh("dp"))
    raises(RuntimeError, "DTensor", lambda: made.forward(torch.ones(1, 4)))


def test_FSD412_meta_is_run(group) -> None:
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        made = model()
    fully_shard(made[0], mesh=mesh("dp"))
    fully_shard(made, mesh=mesh("dp"))
    raises(RuntimeError, "meta", lambda: made(torch.ones(1, 4)))


def test_FSD417_a_plain_state_dict(group) -> None:
    state = model().state_dict()
    raises(RuntimeError, "DTensor", lambda: sharded().load_state_dict(state))


def test_FSD502_several_devices(group) -> None:
    from torch.nn.parallel import DistributedDataParallel as DDP

    raises(ValueError, "device_ids", lambda: DDP(model(), device_ids=[0, 1]))


def test_FSD602_FSD605_join(group) -> None:
    from torch.distributed.algorithms.join import Join, Joinable

    class Counter(Joinable):
        def join_hook(self, **kwargs):
            return None

    raises(ValueError, "at least one", lambda: Join([]))
    raises(TypeError, "abstract", Counter)


def test_FSD601_join_of_fsdp(group) -> None:
    from torch.distributed.algorithms.join import Join

    raises(AttributeError, "join_hook", lambda: Join([sharded()]))


def test_FSD706_dcp_load_into_nothing(group, tmp_path) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.save({"model": {"x": torch.ones(2)}}, checkpoint_id=str(tmp_path))
    state: dict = {"model": {}}
    dcp.load(state, checkpoint_id=str(tmp_path))
    assert state == {"model": {}}


def test_FSD707_broadcast_without_full(group) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    raises(
        ValueError,
        "full_state_dict must be True",
        lambda: get_model_state_dict(model(), options=StateDictOptions(broadcast_from_rank0=True)),
    )


def test_FSD802_shuffle_beside_a_sampler() -> None:
    from torch.utils.data import DataLoader, DistributedSampler

    data = list(range(4))
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    raises(ValueError, "mutually exclusive", lambda: DataLoader(data, sampler=sampler, shuffle=True))


def test_FSD904_a_class_is_no_module() -> None:
    import importlib

    raises(
        ModuleNotFoundError, "not a package", lambda: importlib.import_module("torch.distributed.algorithms.join.Join")
    )
