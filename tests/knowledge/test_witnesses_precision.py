"""Witnesses of claims on dtypes: mixed precision of both generations, gradient scaling, clipping, offload.

Dtypes are seen in a fake process group of eight ranks; values on four real processes.
"""

import inspect
import math

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("last_rank")]

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import (  # noqa: E402
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from witness_tools import WEIGHTS, Log, fsdp, of, on_gloo, three_layers, trace  # noqa: E402

WORLD = 8
A, B, C = WEIGHTS
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def sharded(mesh, *policy, **options):
    model = three_layers()
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(*policy), **options)
    return fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(*policy), **options)


def dtypes(events, name):
    return {event.dtype for event in of(events, name)}


# FSDP2


class Product(nn.Module):
    """A linear layer, whose result autocast makes bfloat16, and a product, for which autocast takes float32."""

    def __init__(self):
        super().__init__()
        self.linear, self.dtypes = nn.Linear(16, 16), []

    def forward(self, x):
        hidden = self.linear(x)
        product = hidden.prod(-1)
        self.dtypes += [x.dtype, hidden.dtype, product.dtype]
        return product


def test_whole_modules_not_operations(mesh):
    kept = []
    model = fully_shard(Product(), mesh=mesh, mp_policy=MixedPrecisionPolicy(BF16, F32))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.dtype) or tensor, lambda x: x):
        model(torch.ones(2, 16))
    assert model.dtypes == [BF16, BF16, BF16] and set(kept) == {BF16}
    plain = Product()
    with torch.autocast("cpu", BF16):
        plain(torch.ones(2, 16))
    assert plain.dtypes == [F32, BF16, F32]


def test_no_other_copy_of_the_parameters(mesh):
    model = sharded(mesh, BF16, F32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trace(model)
    for layer, elements in zip(model, WEIGHTS, strict=True):
        (group,) = layer._get_fsdp_state()._fsdp_param_groups
        (parameter,) = group.fsdp_params
        tensors = {
            tensor.untyped_storage().data_ptr(): (tensor.numel(), tensor.dtype)
            for value in vars(parameter).values()
            for tensor in (value if isinstance(value, list) else [value])
            if type(tensor) is torch.Tensor and tensor.untyped_storage().size() > 0
        }
        assert list(tensors.values()) == [(elements // WORLD, F32)]  # the shard, and nothing else
    assert {parameter.dtype for group in optimizer.param_groups for parameter in group["params"]} == {F32}


def test_compute_dtype(mesh):
    for policy, expected in (((BF16, F32), BF16), ((), F32)):
        model = sharded(mesh, *policy)
        seen = []
        model[0].register_forward_pre_hook(lambda layer, _, seen=seen: seen.append(layer.weight.dtype))
        forward, backward = trace(model)
        assert seen == [expected]
        for name in ("gather", "mm"):
            assert dtypes(forward, name) == dtypes(backward, name) == {expected}


def test_optimizer_steps_in_the_original_dtype(mesh):
    for original in (F32, BF16):
        layer = fully_shard(nn.Linear(16, 16, dtype=original), mesh=mesh, mp_policy=MixedPrecisionPolicy(F16, F32))
        optimizer = torch.optim.Adam(layer.parameters())
        trace(layer)
        optimizer.step()
        assert layer.weight.dtype == layer.weight.grad.dtype == original
        assert optimizer.state[layer.weight]["exp_avg"].dtype == original


def test_reduce_dtype(mesh):
    hybrid = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    for policy, expected in (((BF16, F32), F32), ((F32, BF16), BF16), ((BF16, None), BF16), ((None, None), F32)):
        _, backward = trace(sharded(hybrid, *policy))
        assert dtypes(backward, "scatter") == dtypes(backward, "reduce") == {expected}


def test_output_dtype(mesh):
    for wanted, expected in ((F32, F32), (None, BF16)):
        model = fully_shard(three_layers(), mesh=mesh, mp_policy=MixedPrecisionPolicy(BF16, output_dtype=wanted))
        assert model(torch.ones(2, 16)).dtype == expected


@pytest.mark.parametrize("cast", [None, True, False])
def test_forward_inputs_are_cast(mesh, cast):
    assert MixedPrecisionPolicy() == MixedPrecisionPolicy(None, None, None, cast_forward_inputs=True)
    options = {} if cast is None else {"cast_forward_inputs": cast}
    layer = nn.Linear(16, 16)
    seen = []
    layer.forward = lambda x, tokens: seen.extend([x.dtype, tokens.dtype])
    fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(BF16, **options))
    layer(torch.ones(2, 16), torch.ones(2, dtype=torch.long))
    assert seen == [F32 if cast is False else BF16, torch.long]


def test_averaging(mesh):
    scale = {}
    for dtype in (F32, BF16, F16):
        layer = fully_shard(nn.Linear(16, 16, bias=False), mesh=mesh, mp_policy=MixedPrecisionPolicy(dtype, dtype))
        scattered = []

        class Spy(Log):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func._schema.name == "c10d::_reduce_scatter_base_":
                    scattered.append(args[1][0].item())
                return super().__torch_dispatch__(func, types, args, kwargs)

        with Spy() as log:
            layer(torch.ones(1, 16)).sum().backward()
        (event,) = of(log.take(), "scatter")
        scale[dtype] = event.op, scattered
    # Each gradient is one: divided by 4, the power of two next to the root of 8, before, and by 2 after.
    assert scale == {F32: ("AVG", [1.0]), BF16: ("AVG", [1.0]), F16: ("SUM", [0.25])}


def test_mixed_gather_is_of_bytes(mesh):
    model = three_layers()
    model[1].requires_grad_(False).to(BF16)
    fully_shard(model, mesh=mesh)
    with Log() as log:
        model.unshard()
        (event,) = of(log.take(), "gather")
    assert (event.dtype, event.elements) == (torch.uint8, 4 * A + 2 * B + 4 * C)


def test_dtype_of_accumulation(mesh):
    kept = {}
    for reduce_dtype in (F32, BF16):
        model = sharded(mesh, BF16, reduce_dtype)
        model.set_requires_gradient_sync(False)
        trace(model)
        trace(model)
        (group,) = model[1]._get_fsdp_state()._fsdp_param_groups
        (parameter,) = group.fsdp_params
        gradient = parameter.unsharded_accumulated_grad
        gradient = parameter.unsharded_param.grad if gradient is None else gradient
        kept[reduce_dtype] = gradient.untyped_storage().nbytes()
    assert kept == {F32: 4 * B, BF16: 2 * B}


# FSDP1


def test_fsdp1_compute_dtype():
    model = fsdp(three_layers(), mixed_precision=MixedPrecision(param_dtype=BF16))
    seen = []
    model.module[0].register_forward_pre_hook(lambda layer, _: seen.append(layer.weight.dtype))
    forward, backward = trace(model)
    assert seen == [BF16] and dtypes(forward, "mm") == dtypes(backward, "mm") == {BF16}
    assert [parameter.dtype for parameter in model.parameters()] == [F32]
    assert {tensor.dtype for tensor in model.state_dict().values()} == {F32}


def test_fsdp1_reduce_dtype():
    for options, expected in (({}, BF16), ({"reduce_dtype": F32}, F32)):
        model = fsdp(three_layers(), mixed_precision=MixedPrecision(param_dtype=BF16, **options))
        assert dtypes(trace(model)[1], "scatter") == {expected}


def test_fsdp1_buffers():
    layer = nn.Linear(16, 16)
    layer.register_buffer("table", torch.ones(16))
    model = fsdp(layer, mixed_precision=MixedPrecision(buffer_dtype=BF16))
    model(torch.ones(2, 16))
    assert layer.table.shape == (16,) and layer.table.dtype == BF16  # whole, and so from then on
    assert "buffer_dtype" not in inspect.signature(MixedPrecisionPolicy).parameters


def test_fsdp1_gradients_after_backward():
    for options, expected in (({}, F32), ({"keep_low_precision_grads": True}, BF16)):
        model = fsdp(three_layers(), mixed_precision=MixedPrecision(param_dtype=BF16, **options))
        trace(model)
        assert [parameter.grad.dtype for parameter in model.parameters()] == [expected]


def test_norms_accumulate_in_float32():
    torch.manual_seed(0)
    rows = (torch.randn(4, 4096) + 3).bfloat16()
    for norm, data in ((nn.LayerNorm(4096), rows), (nn.BatchNorm1d(4), rows.t().contiguous())):
        low = norm.bfloat16()(data)
        right = norm.double()(data.double())
        assert low.dtype == BF16
        assert (low.double() - right).abs().max() < 0.05  # of values up to 4, rounded to bfloat16
    running = torch.zeros((), dtype=BF16)
    for number in rows[0]:
        running += number
    assert abs(running.item() / 4096 - rows[0].double().mean().item()) > 1  # what adding up in bfloat16 gives


def test_fsdp1_batch_norm_apart():
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 16))
    with pytest.warns(UserWarning, match="[Bb]atch ?[Nn]orm"):
        root = fsdp(
            model,
            mixed_precision=MixedPrecision(param_dtype=BF16, reduce_dtype=BF16, buffer_dtype=BF16),
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        )
    unit = root.module[1]
    assert isinstance(unit, FullyShardedDataParallel) and isinstance(unit.module, nn.BatchNorm1d)
    assert unit.mixed_precision.param_dtype is None
    seen = []
    unit.module.register_forward_pre_hook(lambda layer, _: seen.append((layer.weight.dtype, layer.running_mean.dtype)))
    with Log() as log:
        root(torch.ones(2, 16))
        gathers = of(log.take(), "gather")
    assert seen == [(F32, F32)]
    assert [event.dtype for event in gathers] == [BF16, F32, BF16]  # a collective of its own


# Offload


def test_offload_default():
    assert type(inspect.signature(fully_shard).parameters["offload_policy"].default) is OffloadPolicy
    assert not issubclass(OffloadPolicy, CPUOffloadPolicy)


def test_offload_leaves_resharding_as_it_is(mesh):
    for reshard in (True, False):
        model = sharded(mesh, offload_policy=CPUOffloadPolicy(pin_memory=False), reshard_after_forward=reshard)
        assert len(of(trace(model)[1], "gather")) == (3 if reshard else 0)


# Gradient scaling


def test_scaler_starts_high():
    assert torch.amp.GradScaler("cpu").get_scale() == 2.0**16
    weight = nn.Parameter(torch.ones(()))
    optimizer, scaler, skipped = torch.optim.SGD([weight], lr=0.0), torch.amp.GradScaler("cpu"), 0
    while True:  # the gradient is 8; times 2**16 it is too large for float16
        optimizer.zero_grad()
        scaler.scale((weight.half() * 8).float()).backward()
        scaler.step(optimizer)
        scaler.update()
        if math.isfinite(weight.grad.item()):
            break
        skipped += 1
    assert skipped == 4 and scaler.get_scale() == 2.0**12  # 2**12 * 8 is the first that float16 holds


def test_scaler_skips_and_lowers():
    weight = nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler("cpu")
    for bad in (math.inf, math.nan):
        before = scaler.get_scale()
        scaler.scale(weight.sum()).backward()
        weight.grad[0] = bad
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [1, 1] and scaler.get_scale() < before
        optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    assert weight.tolist() == [0, 0]
    tiny = torch.tensor(1e-8, requires_grad=True)
    assert (tiny.half() == 0).item() and (tiny.detach() * 2**16).half() > 0  # what scaling is for


# Values, on real processes


def found_by_one(mesh):
    """The last rank alone has an infinite gradient: what each rank's scaler makes of it, FSDP2's and FSDP1's."""
    results = []
    bad = dist.get_rank() == dist.get_world_size() - 1
    for generation in (2, 1, 0):
        layer = nn.Linear(4, 4, bias=False)
        layer.weight.data.fill_(1.0)
        if generation == 2:
            layer = fully_shard(layer, mesh=mesh)
        elif generation == 1:
            layer = fsdp(layer)
        (parameter,) = layer.parameters()
        scaler = ShardedGradScaler(device="cpu") if generation == 1 else torch.amp.GradScaler("cpu")
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        scaler.scale(layer(torch.ones(1, 4)).sum()).backward()
        gradient = parameter.grad.to_local() if generation == 2 else parameter.grad
        if bad:
            gradient.fill_(math.inf)
        scaler.step(optimizer)
        scaler.update()
        local = parameter.to_local() if generation == 2 else parameter
        results.append((local.flatten()[0].item(), scaler.get_scale()))
    return results


def fsdp1_norm(mesh):
    """FSDP1's own clipping beside the function of torch.nn.utils, on gradients 0 ... 15 sharded over four ranks."""
    model = fsdp(nn.Linear(4, 4, bias=False))
    (parameter,) = model.parameters()
    model(torch.ones(1, 4)).sum().backward()
    mine = torch.arange(16.0).chunk(4)[dist.get_rank()]
    parameter.grad = mine.clone()
    plain = torch.nn.utils.clip_grad_norm_([parameter], 1e9).item()
    return plain, model.clip_grad_norm_(1.0).item(), parameter.grad.tolist()


@pytest.fixture(scope="module")
def ran(last_rank):
    return on_gloo(4, found_by_one, fsdp1_norm)


def test_scalers_agree_over_the_ranks(ran):
    for rank, (second, first, plain) in enumerate(ran["found_by_one"]):
        assert second == first == (1.0, 2.0**15)  # every rank skipped its step and halved its scale
        assert plain == ((1.0, 2.0**15) if rank == 3 else (0.0, 2.0**16))  # alone, each decides for itself


def test_fsdp1_clipping(ran):
    right = sum(number**2 for number in range(16)) ** 0.5
    for rank, (plain, own, gradient) in enumerate(ran["fsdp1_norm"]):
        mine = range(4 * rank, 4 * rank + 4)
        assert plain == pytest.approx(sum(number**2 for number in mine) ** 0.5)  # of this rank's shard only
        assert own == pytest.approx(right)
        assert gradient == pytest.approx([number / right for number in mine], rel=1e-5)
