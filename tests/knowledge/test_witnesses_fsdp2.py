"""Witnesses of claims on fully_shard: what is gathered, reduced and freed, and when.

All run in one process of a fake process group of eight ranks, as the last rank.
"""

import copy

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("last_rank")]

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method, share_comm_ctx  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402
from witness_tools import WEIGHTS, Log, fsdp, of, sizes, three_layers, trace  # noqa: E402

WORLD = 8
A, B, C = WEIGHTS


def sharded(mesh, **options):
    """Three layers in a group each; the root has no parameters of its own."""
    model = three_layers()
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh)


def parameter_of(layer):
    (group,) = layer._get_fsdp_state()._fsdp_param_groups
    (parameter,) = group.fsdp_params
    return parameter


def test_states_are_sharded(mesh):
    model = sharded(mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    trace(model)
    optimizer.step()
    for layer, elements in zip(model, WEIGHTS, strict=True):
        state = optimizer.state[layer.weight]
        for tensor in (layer.weight, layer.weight.grad, state["exp_avg"], state["exp_avg_sq"]):
            assert isinstance(tensor, DTensor)
            assert tensor.to_local().numel() == elements / WORLD


def test_forward_gathers_group_by_group(mesh):
    model = sharded(mesh)
    seen = []
    for layer in model:
        layer.register_forward_pre_hook(lambda layer, _: seen.append((type(layer.weight.data), layer.weight.numel())))
    forward, _ = trace(model)
    assert sizes(forward) == [("gather", A), ("mm", A), ("gather", B), ("mm", B), ("gather", C), ("mm", C)]
    assert {event.ranks for event in of(forward, "gather")} == {WORLD}
    assert seen == [(torch.Tensor, elements) for elements in WEIGHTS]  # whole and ordinary, in forward


def test_backward_frees_and_reduces_group_by_group(mesh):
    model = sharded(mesh)
    reduced = []
    for layer in model:
        layer.weight.register_post_accumulate_grad_hook(lambda weight: reduced.append(type(weight)))
    _, backward = trace(model)
    assert sizes(backward, "scatter") == [("scatter", C), ("scatter", B), ("scatter", A)]
    products = [at for at, event in enumerate(sizes(backward)) if event == ("mm", C)]
    assert products and max(products) < sizes(backward).index(("scatter", C))  # after its gradients, not before
    for layer in model:
        assert isinstance(layer.weight, DTensor) and isinstance(layer.weight.grad, DTensor)
        assert parameter_of(layer).all_gather_outputs[0].untyped_storage().size() == 0  # freed


def test_sharded_parameters_are_dtensors(mesh):
    model = fully_shard(nn.Linear(16, 32, bias=False), mesh=mesh)
    assert isinstance(model.weight, DTensor) and model.weight.placements == (Shard(0),)
    assert model.weight.to_local().shape == (4, 16)
    model.unshard()
    assert type(model.weight) is nn.Parameter and model.weight.shape == (32, 16)
    model.reshard()
    assert isinstance(model.weight, DTensor)


def test_each_call_is_one_group(mesh):
    model = three_layers()
    fully_shard(model[1], mesh=mesh)
    fully_shard(model, mesh=mesh)
    forward, backward = trace(model)
    assert sizes(forward, "gather") == [("gather", A + C), ("gather", B)]  # the root takes what the layer left
    assert sorted(sizes(backward, "scatter")) == [("scatter", B), ("scatter", A + C)]
    with pytest.raises((TypeError, RuntimeError)):  # the other way round: the root has taken the layer's
        fully_shard(fully_shard(three_layers(), mesh=mesh)[1], mesh=mesh)


def test_root_alone_is_one_group(mesh):
    model = fully_shard(three_layers(), mesh=mesh)
    together = []
    model[2].register_forward_pre_hook(lambda *_: together.append([layer.weight.numel() for layer in model]))
    forward, backward = trace(model)
    assert sizes(forward) == [("gather", A + B + C), ("mm", A), ("mm", B), ("mm", C)]  # nothing left to overlap
    assert sizes(backward, "scatter") == [("scatter", A + B + C)]
    assert together == [list(WEIGHTS)]  # all whole at once


def test_layer_by_layer_holds_one_layer(mesh):
    model = sharded(mesh)
    held = []

    def look(*_):
        outputs = [parameter_of(layer).all_gather_outputs for layer in model]
        held.append([bool(out) and out[0].untyped_storage().size() > 0 for out in outputs])

    for layer in model:
        layer.register_forward_pre_hook(look)
    backward = sizes(trace(model)[1])
    assert held == [[True, False, False], [False, True, False], [False, False, True]]
    assert backward.index(("gather", B)) < backward.index(("mm", C))  # issued before what it can overlap with


def test_list_of_modules_is_one_group(mesh):
    model = three_layers()
    fully_shard([model[1], model[2]], mesh=mesh)
    fully_shard(model, mesh=mesh)
    forward, backward = trace(model)
    assert sizes(forward, "gather") == [("gather", A), ("gather", B + C)]
    assert sizes(backward, "scatter") == [("scatter", B + C), ("scatter", A)]


def test_list_called_in_chunks(mesh):
    norm, head = nn.Linear(16, 16, bias=False), nn.Linear(16, 32, bias=False)
    model = nn.ModuleDict({"norm": norm, "head": head})
    fully_shard([norm, head], mesh=mesh)
    root = nn.Module()
    root.parts = model
    root.forward = lambda x: norm(x)
    fully_shard(root, mesh=mesh)
    hidden = root(torch.ones(6, 16))
    leaf = hidden.detach().requires_grad_()
    with Log() as log:
        for chunk in leaf.chunk(3):
            head(chunk).sum().backward()
        assert len(of(log.take(), "scatter")) == 3


def test_in_place(mesh):
    layer = nn.Linear(16, 16)
    returned = fully_shard(layer, mesh=mesh)
    assert returned is layer
    assert isinstance(layer, FSDPModule) and isinstance(layer, nn.Linear)
    assert type(layer).__mro__.index(FSDPModule) < type(layer).__mro__.index(nn.Linear)


def test_default_mesh_holds_all_ranks():
    weight = fully_shard(nn.Linear(16, 16)).weight
    assert weight.device_mesh.ndim == 1
    assert weight.device_mesh.mesh.tolist() == list(range(WORLD))


def test_one_dimensional_mesh(mesh):
    model = sharded(mesh)
    assert all(parameter.placements == (Shard(0),) for parameter in model.parameters())


def test_reshard_true_gathers_again(mesh):
    model = sharded(mesh, reshard_after_forward=True)
    with Log() as log:
        loss = model(torch.ones(2, 16)).sum()
        assert all(isinstance(layer.weight, DTensor) for layer in model)
        assert all(parameter_of(layer).all_gather_outputs[0].untyped_storage().size() == 0 for layer in model)
        log.take()
        loss.backward()
        assert sorted(sizes(log.take(), "gather")) == [("gather", elements) for elements in WEIGHTS]


def test_reshard_false_keeps(mesh):
    model = sharded(mesh, reshard_after_forward=False)
    with Log() as log:
        loss = model(torch.ones(2, 16)).sum()
        assert [layer.weight.numel() for layer in model] == list(WEIGHTS)
        assert not any(isinstance(layer.weight, DTensor) for layer in model)
        log.take()
        loss.backward()
        assert not of(log.take(), "gather")


def test_backward_needs_the_root_first(mesh):
    model = three_layers()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[1], mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    _, backward = trace(model)
    assert sizes(backward)[0] == ("gather", C)  # the root's own, before any other


def test_reshard_to_four_ranks(mesh):
    model = sharded(mesh, reshard_after_forward=4)
    with Log() as log:
        loss = model(torch.ones(2, 16)).sum()
        assert {event.ranks for event in of(log.take(), "gather")} == {WORLD}
        for layer, elements in zip(model, WEIGHTS, strict=True):
            assert layer.weight.to_local().numel() == elements / 4
            assert parameter_of(layer)._sharded_post_forward_param_data.numel() == elements / 4
            assert parameter_of(layer)._sharded_param_data.untyped_storage().nbytes() == elements / WORLD * 4
        loss.backward()
        gathers = of(log.take(), "gather")
    assert {event.ranks for event in gathers} == {4}
    assert sorted(event.elements for event in gathers) == list(WEIGHTS)
    groups = [layer._get_fsdp_state()._fsdp_param_groups[0].post_forward_mesh_info for layer in model]
    assert [tuple(info.mesh.shape) for info in groups] == [(2, 4)] * 3
    assert len({id(info.mesh) for info in groups}) == 3  # a mesh for each call


def test_set_reshard_after_forward(mesh):
    model = sharded(mesh)
    model.set_reshard_after_forward(False)
    assert not of(trace(model)[1], "gather")
    model.set_reshard_after_forward(True)
    assert len(of(trace(model)[1], "gather")) == 3
    root = fully_shard(three_layers(), mesh=mesh)
    assert not of(trace(root)[1], "gather")
    root.set_reshard_after_forward(True)
    assert len(of(trace(root)[1], "gather")) == 1


def test_both_copies_take_memory(mesh):
    model = sharded(mesh)
    seen = []

    def look(layer, _):
        parameter = parameter_of(layer)
        storages = parameter._sharded_param_data.untyped_storage(), parameter.unsharded_param.untyped_storage()
        seen.append(tuple(storage.nbytes() for storage in storages))

    for layer in model:
        layer.register_forward_pre_hook(look)
    trace(model)
    assert seen == [(elements * 4 // WORLD, elements * 4) for elements in WEIGHTS]


def test_placement_function(mesh):
    chosen = fully_shard(nn.Linear(16, 32, bias=False), mesh=mesh, shard_placement_fn=lambda parameter: Shard(1))
    assert chosen.weight.placements == (Shard(1),) and chosen.weight.to_local().shape == (32, 2)
    default = fully_shard(nn.Linear(16, 32, bias=False), mesh=mesh, shard_placement_fn=lambda parameter: None)
    assert default.weight.placements == (Shard(0),)


def test_even_sharding_on_another_dimension(mesh):
    for width, even in ((8, True), (24, True), (4, False), (12, False)):
        layer = nn.Linear(width, 16, bias=False)
        if even:
            fully_shard(layer, mesh=mesh, shard_placement_fn=lambda parameter: Shard(1))
            assert layer.weight.to_local().shape == (16, width // WORLD)
        else:
            with pytest.raises(NotImplementedError):
                fully_shard(layer, mesh=mesh, shard_placement_fn=lambda parameter: Shard(1))


def test_mesh_for_each_parameter():
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult

    square = init_device_mesh("cpu", (2, 4), mesh_dim_names=("outer", "inner"))
    whole, part = FSDPMeshInfo(square._flatten(), shard_mesh_dim=0), FSDPMeshInfo(square["inner"], shard_mesh_dim=0)
    model = three_layers()
    experts = {model[1].weight}
    fully_shard(
        model,
        mesh=square._flatten(),
        shard_placement_fn=lambda parameter: ShardPlacementResult(Shard(0), part if parameter in experts else whole),
    )
    assert [layer.weight.to_local().numel() for layer in model] == [A / 8, B / 4, C / 8]
    forward, _ = trace(model)
    assert sorted((event.elements, event.ranks) for event in of(forward, "gather")) == [(B, 4), (A + C, 8)]


def test_non_contiguous_parameter(mesh):
    layer = nn.Linear(16, 32, bias=False)
    layer.weight = nn.Parameter(torch.ones(16, 32).t())
    with pytest.raises(NotImplementedError, match="non-contiguous"):
        fully_shard(layer, mesh=mesh)


def test_deepcopy(mesh):
    with pytest.raises(AssertionError, match="does not support deepcopy"):
        copy.deepcopy(fully_shard(nn.Linear(16, 16), mesh=mesh))


def test_submodule_before_the_root(mesh):
    model = sharded(mesh)
    model[0](torch.ones(2, 16))  # becomes a root itself
    with pytest.raises(RuntimeError, match="forward through the root"):
        model(torch.ones(2, 16))


class Two(nn.Linear):
    def generate(self, x):
        return self(x) if not isinstance(self.weight, DTensor) else type(self.weight)


def test_other_methods_are_registered(mesh):
    layer = fully_shard(Two(16, 16), mesh=mesh)
    assert layer.generate(torch.ones(2, 16)) is DTensor  # nothing gathered
    registered = fully_shard(Two(16, 16), mesh=mesh)
    register_fsdp_forward_method(registered, "generate")
    seen = []
    registered.forward = lambda x: seen.append(type(registered.weight)) or x
    registered.generate(torch.ones(2, 16))
    assert seen == [nn.Parameter]


def test_call_not_forward(mesh):
    layer = fully_shard(nn.Linear(16, 32, bias=False), mesh=mesh)
    with Log() as log:
        with pytest.raises(RuntimeError, match="got mixed"):
            layer.forward(torch.ones(2, 16))
        assert not of(log.take(), "gather")
        layer(torch.ones(2, 16))
        assert sizes(log.take()) == [("gather", B), ("mm", B)]


def test_share_comm_ctx(mesh):
    first, second = (fully_shard(nn.Linear(16, 16), mesh=mesh) for _ in range(2))
    assert first._get_fsdp_state()._comm_ctx is not second._get_fsdp_state()._comm_ctx
    share_comm_ctx([first, second])
    assert first._get_fsdp_state()._comm_ctx is second._get_fsdp_state()._comm_ctx
    for layer in (first, second):
        trace(layer)
    groups = [layer._get_fsdp_state()._fsdp_param_groups[0] for layer in (first, second)]
    assert groups[0].comm_ctx is groups[1].comm_ctx


def test_meta_parameters_at_the_first_forward(mesh):
    with torch.device("meta"):
        early, layer = nn.Linear(16, 16), nn.Linear(16, 16)
    fully_shard(early, mesh=mesh)
    with pytest.raises(RuntimeError, match="should be materialized from meta device"):
        early(torch.ones(2, 16))
    fully_shard(layer, mesh=mesh)
    assert isinstance(layer.weight, DTensor) and layer.weight.device.type == "meta"  # sharded all the same
    layer.to_empty(device="cpu")
    assert layer.weight.device.type == "cpu"
    with torch.device("meta"):
        first_generation = nn.Linear(16, 16)
    assert {parameter.device.type for parameter in fsdp(first_generation).parameters()} == {"cpu"}  # while wrapping
    layer(torch.ones(2, 16))


def test_import_paths():
    import torch.distributed._composable.fsdp as older
    import torch.distributed.fsdp as newer

    assert "fully_shard" in newer.__all__
    for name in ("fully_shard", "MixedPrecisionPolicy", "CPUOffloadPolicy", "OffloadPolicy", "FSDPModule"):
        assert getattr(older, name) is getattr(newer, name)


def test_optimizer_made_before_sharding_holds_other_parameters(mesh):
    layer = nn.Linear(16, 16, bias=False)
    early = torch.optim.SGD(layer.parameters(), lr=1.0)
    fully_shard(layer, mesh=mesh)
    late = torch.optim.SGD(layer.parameters(), lr=1.0)
    assert early.param_groups[0]["params"][0] is not layer.weight
    assert late.param_groups[0]["params"][0] is layer.weight
    layer.weight.grad = torch.ones_like(layer.weight)
    before = layer.weight.to_local().clone()
    early.step()
    assert torch.equal(layer.weight.to_local(), before)
    late.step()
    assert torch.equal(layer.weight.to_local(), before - 1)
