"""Witnesses of claims on FullyShardedDataParallel: strategies, prefetching, accumulation.

Order and sizes are seen in a fake process group of eight ranks, as the last rank.
"""

import inspect

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.usefixtures("last_rank"),
    pytest.mark.filterwarnings("ignore:.*NO_SHARD.*:FutureWarning"),
]

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, ShardingStrategy, fully_shard  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module  # noqa: E402
from witness_tools import WEIGHTS, Log, flat, fsdp, of, sizes, three_layers, trace, units, wrapped  # noqa: E402

WORLD = 8
A, B, C = WEIGHTS
FULL, GRAD_OP, NO = ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD
HYBRID, HYBRID_2 = ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2


def held(model):
    """Elements of gathered parameters that each unit below the root keeps in memory."""
    return [unit._flat_param._full_param_padded.untyped_storage().size() // 4 for unit in units(model)[1:]]


def forward_and_backward(model):
    """Gathers and reductions of forward and of backward, and the parameters that are held between the two."""
    with Log() as log:
        loss = model(torch.ones(2, 16)).sum()
        between = held(model)
        first = sizes(log.take(), "gather", "scatter", "reduce")
        loss.backward()
        return first, between, log.take()


SHARDS = [elements // WORLD for elements in WEIGHTS]
GATHERS = [("gather", elements) for elements in WEIGHTS]
SCATTERS = [("scatter", elements) for elements in reversed(WEIGHTS)]


def test_full_shard():
    model = wrapped(sharding_strategy=FULL)
    optimizer = torch.optim.AdamW(model.parameters())
    assert flat(model) == SHARDS
    forward, between, backward = forward_and_backward(model)
    assert forward == GATHERS and between == [0, 0, 0]
    assert sorted(sizes(backward, "gather")) == GATHERS
    assert sizes(backward, "scatter") == SCATTERS
    optimizer.step()
    assert flat(model) == SHARDS
    assert [parameter.grad.numel() for parameter in model.parameters()] == SHARDS
    assert [optimizer.state[parameter]["exp_avg"].numel() for parameter in model.parameters()] == SHARDS


def test_shard_grad_op():
    model = wrapped(sharding_strategy=GRAD_OP)
    optimizer = torch.optim.AdamW(model.parameters())
    forward, between, backward = forward_and_backward(model)
    assert forward == GATHERS and between == list(WEIGHTS)  # still whole
    assert sizes(backward, "gather", "scatter") == SCATTERS
    assert held(model) == [0, 0, 0]
    optimizer.step()
    assert [parameter.grad.numel() for parameter in model.parameters()] == SHARDS
    assert [optimizer.state[parameter]["exp_avg"].numel() for parameter in model.parameters()] == SHARDS


def test_shard_grad_op_without_synchronisation():
    after = {}
    for strategy in (FULL, GRAD_OP):
        model = wrapped(sharding_strategy=strategy)
        with model.no_sync():
            trace(model)
        after[strategy] = held(model)
    assert after == {FULL: [0, 0, 0], GRAD_OP: list(WEIGHTS)}


def test_no_shard():
    with pytest.warns(FutureWarning, match="NO_SHARD.*deprecated"):
        model = wrapped(sharding_strategy=NO)
    optimizer = torch.optim.AdamW(model.parameters())
    forward, backward = trace(model)
    optimizer.step()
    assert not of(forward, "gather") and flat(model) == list(WEIGHTS)
    assert sizes(backward, "gather", "scatter", "reduce") == [("reduce", e) for e in reversed(WEIGHTS)]
    assert [parameter.grad.numel() for parameter in model.parameters()] == list(WEIGHTS)
    assert [optimizer.state[parameter]["exp_avg"].numel() for parameter in model.parameters()] == list(WEIGHTS)


@pytest.mark.parametrize("strategy", [HYBRID, HYBRID_2])
@pytest.mark.parametrize("given", ["groups", "mesh", "neither"])
def test_hybrid_shard(strategy, given, monkeypatch):
    options = {}
    if given == "groups":
        shard, _ = dist.new_subgroups(4)
        replicate = [dist.new_group([rank, rank + 4]) for rank in range(4)][dist.get_rank() % 4]
        options["process_group"] = (shard, replicate)
    elif given == "mesh":
        options["device_mesh"] = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    else:
        monkeypatch.setattr(torch.cpu, "device_count", lambda: 4)  # four devices in this node
    model = wrapped(sharding_strategy=strategy, **options)
    shards = [elements // 4 for elements in WEIGHTS]
    assert flat(model) == shards
    with Log() as log:
        loss = model(torch.ones(2, 16)).sum()
        between, forward = held(model), log.take()
        loss.backward()
        backward = log.take()
    assert sizes(forward) == [("gather", A), ("mm", A), ("gather", B), ("mm", B), ("gather", C), ("mm", C)]
    if strategy is HYBRID:
        assert between == [0, 0, 0] and sorted(sizes(backward, "gather")) == GATHERS
    else:
        assert between == list(WEIGHTS) and not of(backward, "gather")
    assert sizes(backward, "scatter") == SCATTERS
    assert sizes(backward, "reduce") == [("reduce", elements / 4) for elements in reversed(WEIGHTS)]
    assert {event.ranks for event in forward + backward if event.name in ("gather", "scatter")} == {4}
    assert {event.ranks for event in of(backward, "reduce")} == {2}


def test_device_mesh_for_tensor_parallelism():
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))

    def wrap(**options):
        linear = parallelize_module(nn.Linear(16, 32, bias=False), mesh["tp"], ColwiseParallel())
        return fsdp(linear, use_orig_params=True, **options)

    model = wrap(device_mesh=mesh["dp"])
    assert flat(model) == [16 * 32 / WORLD]
    assert sizes(trace(model)[1], "scatter") == [("scatter", 16 * 32 / 4)]
    with pytest.raises(RuntimeError):
        trace(wrap(process_group=mesh.get_group("dp")))
    hybrid = wrapped(sharding_strategy=HYBRID, device_mesh=mesh)
    assert flat(hybrid) == [elements // 4 for elements in WEIGHTS]


def test_default_strategy():
    assert inspect.signature(FullyShardedDataParallel).parameters["sharding_strategy"].default is None
    assert wrapped().sharding_strategy is FULL


def backward_order(prefetch):
    options = {} if prefetch == "default" else {"backward_prefetch": prefetch}
    _, backward = trace(wrapped(**options))
    # Only the layer's product with its own weight: it stands for "its gradients are computed".
    return [event for event in sizes(backward) if event[0] != "mm" or event[1] in WEIGHTS]


def test_backward_prefetch():
    c, b, a = (("gather", elements) for elements in reversed(WEIGHTS))
    after_c, after_b = ("mm", C), ("mm", B)
    reduce_c, reduce_b, reduce_a = SCATTERS
    before = [c, b, after_c, reduce_c, a, after_b, reduce_b, reduce_a]
    assert backward_order("default") == before
    assert backward_order(BackwardPrefetch.BACKWARD_PRE) == before
    assert backward_order(BackwardPrefetch.BACKWARD_POST) == [c, after_c, b, reduce_c, after_b, a, reduce_b, reduce_a]
    assert backward_order(None) == [c, after_c, reduce_c, b, after_b, reduce_b, a, reduce_a]


def test_fsdp1_forward_prefetch():
    orders = {}
    for early in (False, True):
        model = wrapped(forward_prefetch=early)
        trace(model)  # the order of execution is recorded in the first iteration
        orders[early] = sizes(trace(model)[0])
    a, b, c = GATHERS
    first, second, third = (("mm", elements) for elements in WEIGHTS)
    assert orders == {False: [a, first, b, second, c, third], True: [a, b, first, c, second, third]}


def test_rate_limiter(monkeypatch):
    assert inspect.signature(FullyShardedDataParallel).parameters["limit_all_gathers"].default is True
    waits = {}
    for limit in (None, False):
        waited = []
        monkeypatch.setattr(torch.cpu.Event, "synchronize", lambda event, waited=waited: waited.append(len(log.events)))
        options = {} if limit is None else {"limit_all_gathers": limit}
        model = fsdp(nn.Sequential(*(fsdp(nn.Linear(16, 16, bias=False), **options) for _ in range(4))), **options)
        with Log() as log:
            model(torch.ones(2, 16))
            assert [event.name for event in log.events] == ["gather", "mm"] * 4
        waits[limit] = waited
    # The third gather waits until the first unit is freed, the fourth for the second.
    assert waits == {None: [4, 6], False: []}


def test_fully_shard_has_no_rate_limiter(monkeypatch):
    assert "limit_all_gathers" not in inspect.signature(fully_shard).parameters
    waited = []
    for part in ("Event.synchronize", "synchronize"):
        monkeypatch.setattr(f"torch.cpu.{part}", lambda *_: waited.append(1))
    model = fully_shard(nn.Sequential(*(fully_shard(nn.Linear(16, 16, bias=False)) for _ in range(4))))
    _, backward = trace(model)
    assert len(of(backward, "scatter")) == 4 and not waited
    wrapped(limit_all_gathers=True)(torch.ones(2, 16))
    assert waited  # as FSDP1 does


def test_double_backward():
    model = wrapped()
    inputs = torch.ones(2, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="storage of size 0"):  # the parameters are freed already
        gradient.square().sum().backward()


def test_no_sync():
    model = wrapped()
    with model.no_sync():
        _, backward = trace(model)
    assert not of(backward, "scatter") and not of(backward, "reduce")
    assert [unit._flat_param.grad.numel() for unit in units(model)[1:]] == list(WEIGHTS)  # whole, on every rank
    _, backward = trace(model)
    assert sizes(backward, "scatter") == SCATTERS
    assert [parameter.grad.numel() for parameter in model.parameters()] == SHARDS


def test_no_sync_on_an_inner_unit():
    model = wrapped()
    trace(model)
    with pytest.raises(RuntimeError, match="on inner FSDP instances is not supported"), units(model)[1].no_sync():
        pass


def test_clipping_communicates():
    model = wrapped()
    trace(model)
    with Log() as log:
        model.clip_grad_norm_(1.0)
        assert {(event.name, event.ranks, event.op) for event in log.take()} == {("reduce", WORLD, "SUM")}


def both_generations(strategy, mesh_shape, names, reshard):
    """Collectives of FSDP1's strategy and of fully_shard, in forward and in backward."""
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    second = three_layers()
    for layer in second:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(second, mesh=mesh, reshard_after_forward=reshard)
    first = wrapped(sharding_strategy=strategy, device_mesh=mesh)
    seen = []
    for model in (first, second):
        events = [event for half in trace(model) for event in (*half, None)]
        seen.append([event and event[:4] for event in events if event is None or event.name != "mm"])
    return seen


@pytest.mark.parametrize(
    ("strategy", "shape", "reshard"), [(FULL, (8,), True), (GRAD_OP, (8,), False), (HYBRID, (2, 4), True)]
)
def test_strategies_of_both_generations(strategy, shape, reshard):
    names = ("replicate", "shard")[-len(shape) :]
    first, second = both_generations(strategy, shape, names, reshard)
    assert first == second
    assert first != both_generations(strategy, shape, names, not reshard)[1]
