"""Claims about FSDP2's collectives, hooks and setters, run on PyTorch 2.13: on a fake process group of eight ranks seen from rank 5."""

import dataclasses

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402
from witness_cases import RANK, WORLD, step, two_groups, two_layers, warned  # noqa: E402
from witness_tools import Log, three_layers, trace  # noqa: E402


def test_what_fsdp_adds(fake):
    forward, backward = trace(two_groups(fake))
    assert [sum(event.name == "gather" for event in part) for part in (forward, backward)] == [3, 2]
    assert sum(event.name == "scatter" for event in backward) == 3


def test_forward_without_hooks(fake):
    layer = two_layers(fake)[0]
    with pytest.raises(RuntimeError, match="got mixed torch"):
        layer.forward(torch.ones(2, 16))


def test_number_of_collectives(fake):
    for options, gathers in (
        ({}, (3, 2)),
        ({"reshard_after_forward": False}, (3, 0)),
        ({"reshard_after_forward": True}, (3, 3)),
    ):
        forward, backward = trace(two_groups(fake, **options))
        assert tuple(sum(event.name == "gather" for event in part) for part in (forward, backward)) == gathers
        assert sum(event.name == "scatter" for event in backward) == 3


def test_hybrid_reduction(fake):
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    _, backward = trace(fully_shard(three_layers(), mesh=mesh))
    assert [(event.name, event.ranks) for event in backward if event.name != "mm"] == [("scatter", 4), ("reduce", 2)]


def test_one_rank_has_no_collectives(fake):
    forward, backward = trace(fully_shard(three_layers(), mesh=DeviceMesh("cpu", [RANK])))
    assert {event.name for event in forward + backward} == {"mm"}


def test_sharded_gradients(fake):
    model = two_layers(fake)
    weight, seen = model[0].weight, []
    weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad))
    step(model)
    assert isinstance(weight.grad, DTensor) and weight.grad.placements == weight.placements
    assert len(seen) == 1 and seen[0].to_local().shape == (2, 16)


def reductions(model):
    with Log() as log:
        step(model)
    return [event.op for event in log.events if event.name == "scatter"]


def test_divide_factor(fake):
    assert reductions(two_layers(fake)) == ["AVG", "AVG"]
    model = two_layers(fake)
    model.set_gradient_divide_factor(1.0)  # the root has no parameters of its own: nothing changes
    assert reductions(model) == ["AVG", "AVG"]
    for layer in model:
        layer.set_gradient_divide_factor(1.0)
    assert reductions(model) == ["PREMUL_SUM", "PREMUL_SUM"]
    summed = two_layers(fake)
    for layer in summed:
        layer.set_force_sum_reduction_for_comms(True)
    assert reductions(summed) == ["SUM", "SUM"]
    _, said = warned(lambda: model[0].set_reduce_scatter_divide_factor(1.0))
    assert said == ["DeprecationWarning: Use `set_gradient_divide_factor` instead"]


def test_all_reduce_hook(fake):
    model, seen = two_layers(fake), []
    model[0].set_all_reduce_hook(lambda buffer: seen.append(buffer.numel()))
    step(model)
    assert seen == [(16 * 16 + 16) // WORLD]  # this rank's shard of the layer's gradients
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    with pytest.raises(ValueError, match="stream cannot be set when using native HSDP"):
        fully_shard(nn.Linear(16, 16), mesh=mesh).set_all_reduce_hook(print, stream=object())


def test_custom_all_gather(fake):
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

    calls = []

    class Counting(AllGather):
        def allocate(self, size, *, dtype, device):
            calls.append("allocate")
            return torch.empty(*size, dtype=dtype, device=device)

        def __call__(self, output_tensor, input_tensor, group, async_op=False):
            calls.append("gather")
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)

    model = two_layers(fake)
    model[0].set_custom_all_gather(Counting())
    model(torch.ones(2, 16))
    assert calls == ["allocate", "gather"]


def test_separate_reduce_scatter_group(fake):
    layer = fully_shard(nn.Linear(16, 16), mesh=fake)
    assert group(layer)._reduce_scatter_process_group is group(layer)._all_gather_process_group
    layer.set_separate_reduce_scatter_group()
    apart = group(layer)._reduce_scatter_process_group
    assert apart is not group(layer)._all_gather_process_group
    assert dist.get_process_group_ranks(apart) == list(range(WORLD))


def test_hooks_want_one_group(fake):
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult

    experts = FSDPMeshInfo(mesh=init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "b"))["b"], shard_mesh_dim=0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    apart = model[1].weight
    fully_shard(
        model,
        mesh=fake,
        shard_placement_fn=lambda parameter: ShardPlacementResult(Shard(0), experts) if parameter is apart else None,
    )
    assert len(model._get_fsdp_state()._fsdp_param_groups) == 2
    for call in (model.set_all_reduce_hook, model.set_custom_all_gather, model.set_custom_reduce_scatter):
        with pytest.raises(ValueError, match="not supported with multiple param groups"):
            call(print)


def test_unshard_in_backward(fake):
    model = nn.Sequential(nn.Embedding(16, 16), nn.Linear(16, 16))
    for layer in model:
        fully_shard(layer, mesh=fake)
    fully_shard(model, mesh=fake)
    model[0].set_unshard_in_backward(False)
    with Log() as log:
        loss = model(torch.zeros(2, dtype=torch.long)).sum()
        log.take()
        loss.backward()
    assert sum(event.name == "gather" for event in log.events) == 1  # the linear layer's alone
    wrong = two_layers(fake)
    wrong[1].set_unshard_in_backward(False)
    with pytest.raises(RuntimeError):
        step(wrong)


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return Output(self.layer(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x).hidden


def test_dataclass_output(fake):
    model = Outer()
    fully_shard(model.inner, mesh=fake, reshard_after_forward=True)
    fully_shard(model, mesh=fake)
    with Log() as log:
        model(torch.ones(2, 16, requires_grad=True)).sum().backward()  # an input gradient: backward needs the weight
    assert [event.name for event in log.events if event.name != "mm"] == ["gather", "gather", "scatter"]


def test_view_output_warns(fake):
    class View(nn.Linear):
        def forward(self, x):
            return super().forward(x).view(-1)

    _, said = warned(lambda: fully_shard(View(16, 16), mesh=fake)(torch.ones(2, 16)))
    assert any("returned a view tensor" in text for text in said)
    _, said = warned(lambda: fully_shard(nn.Linear(16, 16), mesh=fake)(torch.ones(2, 16)))
    assert not said


def group(module):
    return module._get_fsdp_state()._fsdp_param_groups[0]


def test_setters_recurse(fake):
    model = two_layers(fake)
    model.set_requires_gradient_sync(False)
    assert not group(model[0]).reduce_grads
    model.set_requires_gradient_sync(True, recurse=False)
    assert not group(model[0]).reduce_grads
    model.set_reshard_after_backward(False)
    assert not group(model[1]).reshard_after_backward
    with pytest.raises(ValueError, match="should be a bool"):
        model.set_reshard_after_forward(2)
    with pytest.raises(ValueError, match="Expects FSDPModule"):
        model.set_modules_to_forward_prefetch([nn.Linear(2, 2)])
    with pytest.raises(TypeError):
        model.set_reduce_scatter_max_input_buffers(True)
    with pytest.raises(ValueError):
        model.set_reduce_scatter_max_input_buffers(0)
    model(torch.ones(2, 16))
    with pytest.raises(RuntimeError, match="must be called on the root"):
        model[0].reset_iter_state()


def test_unshard_is_not_recursive(fake):
    model = two_groups(fake)
    model.unshard()
    assert isinstance(model[0].weight, DTensor)
    assert not isinstance(model[2].weight, DTensor)  # the root's own
    model[0].unshard()
    model.reshard()
    assert not isinstance(model[0].weight, DTensor)
    assert isinstance(model[2].weight, DTensor)


def test_conversion_of_shards(fake):
    layer = fully_shard(nn.Linear(16, 16), mesh=fake)
    layer(torch.ones(2, 16))
    assert not isinstance(layer.weight, DTensor)  # the root: whole after forward
    layer.bfloat16()
    assert isinstance(layer.weight, DTensor) and layer.weight.dtype == torch.bfloat16


def test_evaluation_gathers(fake):
    model = two_groups(fake).eval()
    for context in (torch.no_grad, torch.inference_mode):
        with context(), Log() as log:
            model(torch.ones(2, 16))
        assert context is torch.inference_mode or sum(event.name == "gather" for event in log.events) == 3
        assert isinstance(model[0].weight, DTensor)
        assert not isinstance(model[2].weight, DTensor)  # the root's own
        model.reshard()
        assert isinstance(model[2].weight, DTensor)


def with_extension(mesh, **functions):
    layer = fully_shard(nn.Linear(16, 16, bias=False), mesh=mesh)
    for name, function in functions.items():
        setattr(layer.weight._local_tensor, name, function)
    return layer


def test_low_precision_all_gather(fake):
    seen = []

    def before(mesh, outer_size, outer_stride, module, mp_policy):
        seen.append((outer_size, outer_stride))
        return (torch.ones(2, 16, dtype=torch.bfloat16),), None

    def after(outputs, metadata, dtype, *, out=None):
        return None if out is not None else (outputs[0].to(dtype), ())

    with pytest.raises(AssertionError, match="Both fsdp_pre_all_gather and fsdp_post_all_gather"):
        with_extension(fake, fsdp_pre_all_gather=before)(torch.ones(2, 16))
    layer = with_extension(fake, fsdp_pre_all_gather=before, fsdp_post_all_gather=after)
    with Log() as log:
        layer(torch.ones(2, 16))
    gathers = [event for event in log.events if event.name == "gather"]
    assert [(event.elements, event.dtype) for event in gathers] == [(256, torch.bfloat16)]
    assert seen == [((16, 16), (16, 1))] and layer.weight.dtype == torch.float32
    uneven = fully_shard(nn.Linear(16, 10, bias=False), mesh=fake)  # rows of 2, 2, 2, 2, 2, none, none, none

    def unpadded(mesh, outer_size, outer_stride, module, mp_policy):
        return (torch.ones(0, 16),), None

    uneven.weight._local_tensor.fsdp_pre_all_gather = unpadded
    uneven.weight._local_tensor.fsdp_post_all_gather = after
    with pytest.raises(AssertionError, match="with the padded sharded size"):
        uneven(torch.ones(2, 16))


def test_recomputation_casts(fake):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    policy, seen = MixedPrecisionPolicy(param_dtype=torch.bfloat16), []
    layer = fully_shard(nn.Linear(16, 16), mesh=fake, mp_policy=policy)
    layer.register_forward_pre_hook(lambda module, args: seen.append(args[0].dtype))
    model = fully_shard(nn.Sequential(checkpoint_wrapper(layer)), mesh=fake)
    model(torch.ones(2, 16, requires_grad=True)).sum().backward()
    assert seen == [torch.bfloat16, torch.bfloat16]  # in forward and in the recomputation
