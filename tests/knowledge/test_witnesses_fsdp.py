"""Claims about optimizers, clipping, compilation and changes between releases, run on PyTorch 2.13."""

import inspect

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate  # noqa: E402
from witness_cases import WORLD, Mlp, models, step, two_layers, warned  # noqa: E402
from witness_tools import Log, on_gloo, three_layers, trace  # noqa: E402


def test_optimizer_states_are_sharded(fake):
    model = step(two_layers(fake))
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    state = optimizer.state[model[0].weight]
    assert state["exp_avg"].placements == model[0].weight.placements
    assert state["exp_avg"].to_local().numel() == 16 * 16 // WORLD
    assert not isinstance(state["step"], DTensor)


def test_optimizers_that_fail(fake):
    def stepped(optimizer, **options):
        model = step(two_layers(fake))
        optimizer(model.parameters(), lr=0.1, **options).step()

    for optimizer in (torch.optim.Adam, torch.optim.AdamW):
        stepped(optimizer, fused=True)
    for optimizer in (torch.optim.SGD, torch.optim.Adagrad):
        stepped(optimizer)
        with pytest.raises(NotImplementedError, match="does not have a sharding strategy"):
            stepped(optimizer, fused=True)
    with pytest.raises(RuntimeError, match="index_put_"):
        stepped(torch.optim.Rprop, foreach=False)


def test_clipping_over_two_meshes(fake):
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    layers = [step(fully_shard(nn.Linear(16, 16), mesh=each)) for each in (fake, mesh)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    with pytest.raises(RuntimeError, match="must have the same mesh"):
        nn.utils.clip_grad_norm_(parameters, 1.0)
    norms = [nn.utils.get_total_norm([p.grad for p in layer.parameters()]).full_tensor() for layer in layers]
    nn.utils.clip_grads_with_norm_(layers[0].parameters(), 1.0, torch.stack(norms).norm())
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    fully_shard(model, mesh=fake, ignored_params=set(model[1].parameters()))
    with pytest.raises(RuntimeError, match="got mixed torch"):
        nn.utils.clip_grad_norm_(step(model).parameters(), 1.0)


def test_clipping_nonfinite():
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([float("inf"), 1.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    nn.utils.clip_grad_norm_([parameter], 1.0)
    assert parameter.grad.isnan().any()
    _, said = warned(lambda: nn.utils.clip_grad_norm_((p for p in ()), 1.0))
    assert any("empty generator" in text for text in said)


def clip(mesh):
    pair = models(mesh)
    for model in pair:
        model(torch.ones(2, 8)).sum().backward()
    right, norm = (nn.utils.clip_grad_norm_(model.parameters(), 0.5) for model in pair)
    clipped = pair[1][0].weight.grad.full_tensor()
    return {
        "type": type(norm).__name__,
        "norm": (norm.full_tensor().item(), right.item()),
        "equal": torch.allclose(clipped, pair[0][0].weight.grad),
    }


def optimizers(mesh):
    result, rows = {}, torch.randn(64, 8)
    for name in ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "Muon"):
        pair = models(mesh)
        for model in pair:
            matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
            optimizer = getattr(torch.optim, name)(matrices, lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                model(rows).square().sum().backward()
                optimizer.step()
        result[name] = (pair[1][0].weight.full_tensor() - pair[0][0].weight).abs().max().item()
    return result


@pytest.fixture(scope="module")
def ranks():
    return on_gloo(4, clip, optimizers)


def test_clipping_sharded_gradients(ranks):
    for rank in ranks["clip"]:
        assert rank["type"] == "DTensor" and rank["equal"]
        assert rank["norm"][0] == pytest.approx(rank["norm"][1], rel=1e-5)


def test_optimizers_step_as_on_one_device(ranks):
    for rank in ranks["optimizers"]:
        assert max(rank.values()) < 1e-4, rank
        assert "Muon" in rank


def test_compile_settings():
    import torch._dynamo

    assert torch._dynamo.config.skip_fsdp_guards is True
    assert torch._dynamo.config.optimize_ddp is True
    assert not hasattr(torch._dynamo.config, "skip_fsdp_hooks")


def test_compiled_blocks(fake):
    from torch._dynamo.testing import CompileCounter

    def model(compiled=False):
        blocks = nn.Sequential(Mlp(), Mlp())
        for block in blocks:
            if compiled:
                block.compile(backend=counter)
            fully_shard(block, mesh=fake)
        return fully_shard(blocks, mesh=fake)

    counter = CompileCounter()
    model(compiled=True)(torch.ones(2, 16))
    assert counter.frame_count >= 1
    around = CompileCounter()
    torch.compile(model(), backend=around)(torch.ones(2, 16))
    assert around.frame_count >= 2  # no single graph: it breaks at the FSDP modules
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(model(), backend="eager", fullgraph=True)(torch.ones(2, 16))


def ddp(**options):
    return nn.parallel.DistributedDataParallel(nn.Linear(2, 2), **options)


def test_ddp_broadcast_buffers(fake):
    model, said = warned(ddp)
    assert model.broadcast_buffers is True and not said
    _, said = warned(lambda: ddp(broadcast_buffers=False))
    assert any(text.startswith("FutureWarning: `broadcast_buffers` is deprecated") for text in said)
    _, said = warned(lambda: ddp(forward_sync_buffers=False))
    assert not said


def test_ddp_signature():
    parameters = inspect.signature(nn.parallel.DistributedDataParallel).parameters
    assert parameters["bucket_cap_mb"].default is None and parameters["broadcast_buffers"].default is None


def test_functional_collectives_warn(fake):
    _, said = warned(lambda: torch.distributed.nn.functional.all_reduce(torch.ones(2)))
    assert any("torch.distributed.nn.functional.all_reduce is deprecated" in text for text in said)


def test_collectives_of_2_12(fake):
    with pytest.raises(RuntimeError, match="to be the same type"), dist._coalescing_manager():
        dist.all_reduce(torch.ones(2))
        dist.all_gather_single(torch.ones(2 * WORLD), torch.ones(2))
    assert inspect.signature(dist.barrier).parameters["timeout"].default is None


def test_functional_backward(fake):
    from torch.distributed._functional_collectives import all_reduce

    leaf = torch.ones(2, requires_grad=True)
    all_reduce(leaf, "sum", dist.group.WORLD).sum().backward()
    assert leaf.grad is not None
    with pytest.raises(RuntimeError, match="only supports 'sum'"):
        all_reduce(leaf, "max", dist.group.WORLD).sum().backward()


def test_replicate(fake):
    from torch.distributed._composable.replicate_with_fsdp import replicate

    model = replicate(three_layers(), mesh=fake)
    assert all(parameter.placements == (Replicate(),) for parameter in model.parameters())
    assert [event.name for event in trace(model)[1] if event.name != "mm"] == ["reduce"]
    with pytest.raises(ValueError, match="expects a 1D DeviceMesh"):
        replicate(nn.Linear(16, 16), mesh=init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "b")))


def test_process_group_errors(fake):
    with pytest.raises(ValueError, match="initialize the default process group twice"):
        dist.init_process_group("fake")


def test_fsdp1_needs_an_accelerator(fake, monkeypatch):
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cpu"))
    with pytest.raises(RuntimeError, match="no accelerator device is detected"):
        FullyShardedDataParallel(nn.Linear(4, 4))
    FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"))
    assert isinstance(fully_shard(nn.Linear(4, 4), mesh=fake).weight, DTensor)


def test_selective_checkpointing():
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    products = []
    weight = torch.ones(4, 4, requires_grad=True)

    def policy(context, operator, *args, **kwargs):
        if operator is torch.ops.aten.mm.default:
            products.append(context.is_recompute)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        return create_selective_checkpoint_contexts(policy)

    with Log() as log:
        out = checkpoint(lambda x: (x @ weight).sin(), torch.ones(2, 4), use_reentrant=False, context_fn=contexts)
        out.sum().backward()
    assert products[0] is False
    assert sum(event.name == "mm" for event in log.events) == 2  # forward and the weight's gradient, none again

    def changes(x):
        return (x @ weight).mul_(2).sin()

    with pytest.raises(RuntimeError, match="has been mutated"):
        checkpoint(changes, torch.ones(2, 4), use_reentrant=False, context_fn=contexts).sum().backward()
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(torch.sin, torch.ones(2, requires_grad=True), use_reentrant=True, context_fn=contexts)
