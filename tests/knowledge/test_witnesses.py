"""Claims that are run for real: each test here is the witness of the claims that name it.

All run in one process of a fake process group of eight ranks, as the last rank.
"""

import dataclasses
import inspect
import warnings

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, MixedPrecision, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402

WORLD = 8
LAST = WORLD - 1


@pytest.fixture(scope="module", autouse=True)
def process_group():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=LAST, world_size=WORLD)
    yield
    dist.destroy_process_group()


@pytest.fixture
def mesh():
    return init_device_mesh("cpu", (WORLD,))


def linear(mesh, **options):
    return fully_shard(nn.Linear(16, 16, bias=False), mesh=mesh, **options)


def test_two_dimensional_mesh_needs_names():
    unnamed = DeviceMesh("cpu", torch.arange(WORLD).view(2, 4))
    with pytest.raises(AssertionError, match="mesh_dim_names"):
        linear(unnamed)


def test_hybrid_placements():
    hybrid = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    weight = linear(hybrid).weight
    assert weight.placements == (Replicate(), Shard(0))
    assert weight.to_local().shape == (4, 16)  # 16 rows over the four ranks of the second dimension


def test_reshard_after_forward_default(mesh):
    assert inspect.signature(fully_shard).parameters["reshard_after_forward"].default is None
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.ones(2, 16))
    assert isinstance(model[0].weight, DTensor)  # not the root: resharded
    assert not isinstance(model[1].weight, DTensor)  # the root's own: still whole


def test_reshard_after_forward_int(mesh):
    for wrong in (3, 0, 16):
        with pytest.raises(ValueError, match=f"factor of {WORLD}"):
            linear(mesh, reshard_after_forward=wrong)
    model = linear(mesh, reshard_after_forward=1)
    root = fully_shard(nn.Sequential(model), mesh=mesh)
    root(torch.ones(2, 16))
    assert not isinstance(model.weight, DTensor)  # like False: kept whole


def test_uneven_sharding_on_another_dimension(mesh):
    with pytest.raises(NotImplementedError, match="uneven sharding on dim 1"):
        fully_shard(nn.Linear(9, 16, bias=False), mesh=mesh, shard_placement_fn=lambda parameter: Shard(1))


def test_padding(mesh):
    weight = fully_shard(nn.Linear(4, 10, bias=False), mesh=mesh).weight  # ten rows: chunks of two, five ranks have one
    assert weight.to_local().numel() == 0
    assert weight.to_local().untyped_storage().nbytes() == 2 * 4 * 4


def test_uniform_dtype(mesh):
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16).bfloat16())
    fully_shard(model, mesh=mesh)
    with pytest.raises(AssertionError, match="uniform original parameter dtype"):
        model(torch.ones(2, 16))
    frozen = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16).bfloat16().requires_grad_(False))
    fully_shard(frozen, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    frozen(torch.ones(2, 16))


def test_scalar_parameter(mesh):
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(ValueError, match="scalar parameters"):
        fully_shard(model, mesh=mesh)


def test_module_list(mesh):
    for container in (nn.ModuleList([nn.Linear(8, 8)]), nn.ModuleDict({"a": nn.Linear(8, 8)})):
        with pytest.raises(ValueError, match="do not implement forward"):
            fully_shard(container, mesh=mesh)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def test_tied_weights(mesh):
    tokens = torch.zeros(2, 3, dtype=torch.long)
    apart = Tied()
    fully_shard(apart.embed, mesh=mesh)
    fully_shard(apart.head, mesh=mesh)
    fully_shard(apart, mesh=mesh)
    with pytest.raises(ValueError, match="already managed by another FSDP group"):
        apart(tokens)
    together = Tied()
    fully_shard([together.embed, together.head], mesh=mesh)
    fully_shard(together, mesh=mesh)
    together(tokens)


def test_cpu_offload_policy_fields():
    assert [field.name for field in dataclasses.fields(CPUOffloadPolicy)] == ["pin_memory"]
    assert CPUOffloadPolicy().pin_memory is True


def test_fsdp1_defaults():
    assert CPUOffload().offload_params is False
    precision = MixedPrecision()
    assert (precision.cast_forward_inputs, precision.cast_root_forward_inputs) == (False, True)
    assert precision.keep_low_precision_grads is False


def test_mesh_device_type_without_index():
    with pytest.raises(RuntimeError, match="Device type with index is not supported"):
        init_device_mesh("cuda:0", (WORLD,))


def test_mesh_larger_than_world():
    with pytest.raises(RuntimeError, match="Mesh should not be bigger than default world size"):
        init_device_mesh("cpu", (2 * WORLD,))


def test_unset_backend_serves_one_device():
    served = dist.distributed_c10d.BackendConfig(dist.Backend("undefined")).get_device_backend_map()
    assert len(served) == 1
    if not torch.accelerator.is_available():
        assert served == {"cpu": "gloo"}


def test_nccl_serves_cuda_only():
    assert dist.distributed_c10d.BackendConfig(dist.Backend("nccl")).get_device_backend_map() == {"cuda": "nccl"}


def test_checkpoint_without_use_reentrant():
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(4, 4)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        out = checkpoint(layer, torch.ones(1, 4))
    assert not out.requires_grad  # the reentrant variant: no input requires a gradient, so there is none
    assert checkpoint(layer, torch.ones(1, 4), use_reentrant=False).requires_grad


def test_checkpoint_wrapper_default():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

    assert inspect.signature(checkpoint_wrapper).parameters["checkpoint_impl"].default is CheckpointImpl.NO_REENTRANT


def test_broadcast_needs_full_state_dict(mesh):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    with pytest.raises(ValueError, match="full_state_dict must be True when broadcast_from_rank0 is True"):
        get_model_state_dict(linear(mesh), options=StateDictOptions(broadcast_from_rank0=True))


def stepped(optimizer_class, mesh, **options):
    model = linear(mesh)
    optimizer = optimizer_class(model.parameters(), **options)
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    return model.weight, optimizer.state[model.weight]


def test_adam_states(mesh):
    for optimizer_class in (torch.optim.Adam, torch.optim.AdamW):
        weight, state = stepped(optimizer_class, mesh)
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"}
        assert state["exp_avg"].shape == weight.shape and state["exp_avg"].dtype == weight.dtype
        assert set(stepped(optimizer_class, mesh, amsgrad=True)[1]) == {
            "step",
            "exp_avg",
            "exp_avg_sq",
            "max_exp_avg_sq",
        }


def test_sgd_states(mesh):
    assert not stepped(torch.optim.SGD, mesh, lr=0.1)[1]
    assert set(stepped(torch.optim.SGD, mesh, lr=0.1, momentum=0.9)[1]) == {"momentum_buffer"}


def test_muon_takes_matrices_only():
    with pytest.raises(ValueError, match="only supports 2D parameters"):
        torch.optim.Muon([nn.Parameter(torch.ones(4))])


def test_adafactor_fails_on_sharded_matrices(mesh):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for foreach in (False, True, None):
            with pytest.raises(
                RuntimeError, match="in-place operations that require placement changes are not supported"
            ):
                stepped(torch.optim.Adafactor, mesh, foreach=foreach)
