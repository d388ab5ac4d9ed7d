"""Witnesses of claims on FSDPModule's methods, hybrid sharding and meshes.

Order and sizes are seen in a fake process group of eight ranks; values on four real processes.
"""

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("last_rank")]

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import DataParallelMeshDims, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402
from witness_tools import WEIGHTS, Log, of, on_gloo, sizes, three_layers, trace  # noqa: E402

WORLD = 8
A, B, C = WEIGHTS
INPUT = (2, 16)


@pytest.fixture
def hybrid():
    return init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))


def sharded(mesh, **options):
    model = three_layers()
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def group_of(layer):
    (group,) = layer._get_fsdp_state()._fsdp_param_groups
    return group


# Real processes


def chunks(mesh):
    """Five rows over four ranks, of a matrix whose rows are their numbers."""
    layer = nn.Linear(2, 5, bias=False)
    layer.weight.data = torch.arange(5.0).repeat_interleave(2).view(5, 2)
    fully_shard(layer, mesh=mesh)
    return layer.weight.to_local()[:, 0].tolist()


def alike(mesh):
    """A weight and a buffer that differ between the ranks: each holds its own rank's number everywhere."""
    layer = nn.Linear(2, 4, bias=False)
    nn.init.constant_(layer.weight, dist.get_rank())
    layer.register_buffer("mark", torch.tensor(dist.get_rank()))
    model = fully_shard(nn.Sequential(layer), mesh=mesh)
    weight = layer.weight.full_tensor()[:, 0].tolist()
    model(torch.ones(1, 2))
    return weight, layer.mark.item()


def ignored(mesh):
    """The gradients of a sharded weight and of an ignored bias; each rank's input is its number."""
    layer = nn.Linear(1, 4)
    fully_shard(layer, mesh=mesh, ignored_params={layer.bias})
    layer(torch.full((1, 1), float(dist.get_rank()))).sum().mul(dist.get_rank() + 1).backward()
    return layer.weight.grad.to_local().tolist(), layer.bias.grad.tolist()


def unused(mesh):
    """Every rank uses the first layer or the second, never both; gradients as one matrix each."""
    both = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)])

    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = both

        def forward(self, x):
            return self.layers[dist.get_rank() % 2](x)

    model = fully_shard(Either(), mesh=mesh)
    model.set_reduce_scatter_unused_params(True)
    model(torch.ones(1, 4)).sum().backward()
    return [layer.weight.grad.full_tensor()[0, 0].item() for layer in both]


def frozen(mesh):
    """A frozen layer and a trainable one in one group."""
    model = three_layers()
    model[0].requires_grad_(False)
    fully_shard(model, mesh=mesh)
    _, backward = trace(model)
    return sizes(backward, "scatter"), model[0].weight.grad is None, model[1].weight.grad.to_local().abs().sum().item()


def both_halves(mesh):
    """All-reduce, and reduce-scatter followed by all-gather, of the same numbers."""
    numbers = torch.arange(8.0) * (dist.get_rank() + 1)
    reduced, part, whole = numbers.clone(), torch.empty(2), torch.empty(8)
    dist.all_reduce(reduced)
    dist.reduce_scatter_tensor(part, numbers)
    dist.all_gather_into_tensor(whole, part)
    return reduced.tolist(), part.tolist(), whole.tolist()


def clip(mesh):
    """The norm that clip_grad_norm_ takes over DTensors, and a gradient after it."""
    layer = fully_shard(nn.Linear(4, 4, bias=False), mesh=mesh)
    layer.weight.grad = distribute_tensor(torch.arange(16.0).view(4, 4), mesh, [Shard(0)])
    total = torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    return total.full_tensor().item(), layer.weight.grad.to_local().tolist()


@pytest.fixture(scope="module")
def ran(last_rank):
    return on_gloo(4, chunks, alike, ignored, unused, frozen, both_halves, clip)


def test_chunks(ran):
    assert ran["chunks"] == [[0, 1], [2, 3], [4], []]
    assert [part.tolist() for part in torch.arange(5).chunk(4)] == [[0, 1], [2, 3], [4]]


def test_fully_shard_sends_no_weights(ran):
    assert ran["alike"] == [([0, 1, 2, 3], rank) for rank in range(4)]  # each row is of the rank that holds it


def test_ignored_parameters(ran, mesh):
    layer = nn.Linear(16, 16)
    weight, bias = layer.weight, layer.bias
    fully_shard(layer, mesh=mesh, ignored_params={bias})
    assert layer.bias is bias and not isinstance(bias, DTensor)
    assert layer.weight is not weight and isinstance(layer.weight, DTensor)
    _, backward = trace(layer)
    assert sizes(backward, "scatter", "reduce") == [("scatter", 256)]  # the bias's 16 are not among them
    for rank, (weight, bias) in enumerate(ran["ignored"]):
        assert weight == [[(0 * 1 + 1 * 2 + 2 * 3 + 3 * 4) / 4]]  # the mean over the ranks
        assert bias == [rank + 1] * 4  # this rank's own


def test_unused_parameters_take_part_with_zeros(ran):
    assert ran["unused"] == [[0.5, 0.5]] * 4  # two of four ranks gave ones, the others zeros


def test_frozen_and_trainable_in_one_group(ran):
    for scattered, none, total in ran["frozen"]:
        assert scattered == [("scatter", B + C)] and none and total > 0  # nothing reduced for the frozen one


def test_reduce_scatter_and_all_gather_are_an_all_reduce(ran):
    right = [10.0 * number for number in range(8)]
    for rank, (reduced, part, whole) in enumerate(ran["both_halves"]):
        assert reduced == whole == right
        assert part == right[2 * rank : 2 * rank + 2]


def test_clip_over_dtensors(ran):
    right = sum(number**2 for number in range(16)) ** 0.5
    for rank, (total, rows) in enumerate(ran["clip"]):
        assert total == pytest.approx(right)
        assert rows[0] == pytest.approx([(4 * rank + column) / right for column in range(4)], rel=1e-5)


# The methods of FSDPModule


def test_unshard_by_hand(mesh):
    layer = fully_shard(nn.Linear(16, 32), mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    root = fully_shard(nn.Sequential(layer), mesh=mesh)
    root.unshard()
    assert isinstance(layer.weight, DTensor)  # not recursive
    handle = layer.unshard(async_op=True)
    assert handle is not None
    handle.wait()
    assert layer.weight.shape == (32, 16) and layer.weight.dtype == torch.bfloat16
    assert layer.unshard() is None


def test_reshard_by_hand(mesh):
    model = sharded(mesh, reshard_after_forward=False)
    model(torch.ones(INPUT))
    model.reshard()
    assert not isinstance(model[0].weight, DTensor)  # not recursive
    storage = group_of(model[0]).fsdp_params[0].all_gather_outputs[0].untyped_storage()
    assert storage.size() > 0
    model[0].reshard()
    assert isinstance(model[0].weight, DTensor) and storage.size() == 0


def test_forward_prefetch(mesh):
    events = {}
    for ahead in (0, 1, 2):
        model = sharded(mesh)
        if ahead:
            model[0].set_modules_to_forward_prefetch(list(model)[1 : 1 + ahead])
        events[ahead] = sizes(trace(model)[0])
    a, b, c = (("gather", elements) for elements in WEIGHTS)
    first, second, third = (("mm", elements) for elements in WEIGHTS)
    assert events[0] == [a, first, b, second, c, third]
    assert events[1] == [a, b, first, second, c, third]  # the next gather is issued before this computation
    assert events[2] == [a, b, c, first, second, third]


def test_backward_prefetches_one_ahead_in_reverse(mesh):
    _, backward = trace(sharded(mesh))
    kinds = sizes(backward, "gather", "scatter")
    # While C's gradients are computed, B is gathered; while B's are, A: never two ahead.
    assert kinds == [("gather", C), ("gather", B), ("scatter", C), ("gather", A), ("scatter", B), ("scatter", A)]
    events = sizes(backward)
    assert events.index(("gather", B)) < events.index(("mm", C))


def test_backward_prefetch_by_hand(mesh):
    assert sizes(trace(sharded(mesh))[1], "gather") == [("gather", C), ("gather", B), ("gather", A)]
    model = sharded(mesh)
    model[2].set_modules_to_backward_prefetch([model[0], model[1]])
    model[1].set_modules_to_backward_prefetch([])
    _, backward = trace(model)
    assert sizes(backward, "gather") == [("gather", C), ("gather", A), ("gather", B)]
    assert sizes(backward).index(("gather", B)) < sizes(backward).index(("mm", C))  # two ahead


def test_accumulation_without_communication(hybrid, mesh):
    model = sharded(hybrid)
    model.set_requires_gradient_sync(False)
    assert not of(trace(model)[1], "scatter") and not of(trace(model)[1], "reduce")
    model.set_requires_gradient_sync(True)
    _, backward = trace(model)
    assert sizes(backward, "scatter") == [("scatter", C), ("scatter", B), ("scatter", A)]
    assert sizes(backward, "reduce") == [("reduce", C / 4), ("reduce", B / 4), ("reduce", A / 4)]
    assert {event.ranks for event in of(backward, "scatter")} == {4}
    assert {event.ranks for event in of(backward, "reduce")} == {2}


@pytest.mark.parametrize("reduce_dtype", [None, torch.float32])
def test_accumulated_gradients_are_whole(mesh, reduce_dtype):
    model = sharded(mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype))
    model.set_requires_gradient_sync(False)
    trace(model)
    for layer, elements in zip(model, WEIGHTS, strict=True):
        (parameter,) = group_of(layer).fsdp_params
        kept = parameter.unsharded_accumulated_grad
        if kept is None:
            kept = parameter.unsharded_param.grad
        assert kept.numel() == elements and kept.dtype == (reduce_dtype or torch.bfloat16)
        assert layer.weight.grad is None  # no sharded one yet


def test_accumulation_without_all_reduce(hybrid):
    model = sharded(hybrid)
    model.set_requires_all_reduce(False)
    _, backward = trace(model)
    assert sizes(backward, "scatter", "reduce") == [("scatter", C), ("scatter", B), ("scatter", A)]
    assert [group_of(layer)._partial_reduce_output.numel() for layer in model] == [A / 4, B / 4, C / 4]
    model.set_requires_all_reduce(True)
    assert len(of(trace(model)[1], "reduce")) == 3


def test_keep_unsharded_after_backward(mesh):
    model = sharded(mesh)
    model.set_reshard_after_backward(False)
    trace(model)
    assert [layer.weight.numel() for layer in model] == list(WEIGHTS)
    assert not any(isinstance(layer.weight, DTensor) for layer in model)
    forward, _ = trace(model)
    assert not of(forward, "gather")


def test_last_backward(mesh):
    for last in (True, False):
        model = sharded(mesh)
        model.set_is_last_backward(last)
        trace(model)
        context = group_of(model[0]).comm_ctx
        assert bool(context.post_forward_order) is not last
        assert bool(context.reduce_scatter_states) is not last


def before_backward(layer, look):
    """Calls ``look`` when the gradient of the layer's output is there."""
    layer.register_forward_hook(lambda _, args, out: out.register_hook(lambda gradient: look()) and None)


def test_reduce_scatter_buffers(mesh):
    in_flight = {}
    for most in (None, 1, 2, 3):
        model = sharded(mesh)
        if most:
            model.set_reduce_scatter_max_input_buffers(most)
        held = []
        before_backward(
            model[0], lambda held=held, model=model: held.extend(group_of(model[0]).comm_ctx.reduce_scatter_states)
        )
        trace(model)
        in_flight[most] = [state.reduce_scatter_input.numel() for state in held]
    assert in_flight == {None: [B], 1: [B], 2: [C, B], 3: [C, B]}  # C and B are reduced when A's backward begins


def test_recovery_after_an_exception(mesh):
    model = sharded(mesh)
    trace(model)
    hook = model[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace(model)
    hook.remove()
    assert any(not isinstance(layer.weight, DTensor) for layer in model)  # left as the exception found it
    model.reset_iter_state()
    assert all(isinstance(layer.weight, DTensor) for layer in model)
    forward, backward = trace(model)
    assert len(of(forward, "gather")) == 3 and len(of(backward, "scatter")) == 3
    with pytest.raises(RuntimeError):
        model[0].reset_iter_state()


def test_hybrid_keeps_all_reduce_inputs(hybrid):
    for reduce_dtype, apart in ((torch.float32, False), (torch.bfloat16, True)):
        model = sharded(hybrid, mp_policy=MixedPrecisionPolicy(torch.bfloat16, reduce_dtype))
        kept = []

        def look(model=model, kept=kept):
            for layer in list(model)[1:]:
                buffer = group_of(layer)._all_reduce_state.all_reduce_input
                gradient = group_of(layer).fsdp_params[0].sharded_param.grad.to_local()
                kept.append(
                    (buffer.numel(), buffer.untyped_storage().data_ptr() != gradient.untyped_storage().data_ptr())
                )

        before_backward(model[0], look)
        trace(model)
        assert kept == [(B / 4, apart), (C / 4, apart)]  # a buffer of its own only where the gradient had to be cast
        assert all(group_of(layer)._all_reduce_state is None for layer in model)


# Meshes


def test_spmd_mesh(mesh):
    cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tp"))
    dims = DataParallelMeshDims(shard="shard", replicate="replicate")
    with pytest.raises(ValueError, match="expects a 1D or 2D DeviceMesh"):
        fully_shard(nn.Linear(16, 16, bias=False), mesh=cube)
    with pytest.raises(ValueError, match="DTensor"):
        fully_shard(nn.Linear(16, 16, bias=False), mesh=cube, dp_mesh_dims=dims)

    def placed(*placements):
        layer = nn.Linear(16, 16, bias=False)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, cube, placements))
        return layer

    with pytest.raises(ValueError, match="Replicate"):
        fully_shard(placed(Replicate(), Shard(0), Shard(0)), mesh=cube, dp_mesh_dims=dims)
    layer = fully_shard(placed(Replicate(), Replicate(), Shard(0)), mesh=cube, dp_mesh_dims=dims)
    assert layer.weight.to_local().shape == (4, 16)
    with pytest.raises(NotImplementedError, match="reshard_after_forward as int"):
        fully_shard(placed(Replicate(), Replicate(), Shard(0)), mesh=cube, dp_mesh_dims=dims, reshard_after_forward=2)


def test_data_parallel_mesh_dims():
    with pytest.raises(ValueError, match="At least one of shard or replicate must be set"):
        DataParallelMeshDims()
    cube = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("a", "b", "tp"))
    layer = nn.Linear(16, 16, bias=False)
    layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, cube, [Replicate()] * 3))
    fully_shard(layer, mesh=cube, dp_mesh_dims=DataParallelMeshDims(shard=("a", "b")))
    assert layer.weight.to_local().shape == (4, 16)  # over the four ranks of both
    with Log() as log:
        layer(distribute_tensor(torch.ones(INPUT), cube, [Replicate()] * 3))
        assert {event.ranks for event in of(log.take(), "gather")} == {4}
