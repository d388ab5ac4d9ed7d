"""Witnesses of claims on activation checkpointing, meta devices and distributed checkpoints."""

import threading
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (  # noqa: E402
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.checkpoint import CheckpointError, checkpoint  # noqa: E402
from witness_tools import Log, gloo, on_gloo, sizes  # noqa: E402

WORLD = 4


# Activation checkpointing


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x).relu()


def saved_elements(function):
    """Elements that autograd keeps for backward while ``function`` runs."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda x: x):
        function().sum()
    return sum(kept)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_computes_again(reentrant):
    layer = Counting()
    inputs = torch.ones(64, 4, requires_grad=True)
    out = checkpoint(layer, inputs, use_reentrant=reentrant)
    assert layer.calls == 1
    out.sum().backward()
    assert layer.calls == 2
    right = Counting()
    right.load_state_dict(layer.state_dict())
    right(torch.ones(64, 4)).sum().backward()
    assert torch.equal(layer.weight.grad, right.weight.grad)
    layers = nn.Sequential(*(Counting() for _ in range(4)))
    assert saved_elements(lambda: layers(inputs)) > 4 * inputs.numel()
    assert saved_elements(lambda: checkpoint(layers, inputs, use_reentrant=reentrant)) <= inputs.numel()


def test_early_stop():
    calls = {}
    for reentrant in (False, True):
        first, last = Counting(), nn.Identity()
        counted = []
        last.register_forward_hook(lambda *_, counted=counted: counted.append(1))
        inputs = torch.ones(2, 4, requires_grad=True)
        checkpoint(nn.Sequential(first, last), inputs, use_reentrant=reentrant).sum().backward()
        assert first.calls == 2
        calls[reentrant] = len(counted)
    assert calls == {False: 1, True: 2}  # nothing of the identity is needed: it is not run again


def test_reentrant_needs_inputs_that_require_gradients():
    layer = nn.Linear(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not checkpoint(layer, torch.ones(1, 4), use_reentrant=True).requires_grad
    checkpoint(layer, torch.ones(1, 4, requires_grad=True), use_reentrant=True).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0] * 4] * 4
    layer.weight.grad = None
    checkpoint(layer, torch.ones(1, 4), use_reentrant=False).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0] * 4] * 4


def test_recomputation_must_be_the_same():
    sign = [1.0]

    def shapes(x):
        sign[0] = -sign[0]
        return (x.exp() if sign[0] < 0 else x[:1].exp()).sum()

    def values(x):
        sign[0] = -sign[0]
        return (x * sign[0]).exp().sum()

    inputs = torch.ones(3, requires_grad=True)
    with pytest.raises(CheckpointError):
        checkpoint(shapes, inputs, use_reentrant=False).backward()
    sign[0] = 1.0
    checkpoint(values, inputs, use_reentrant=False).backward()  # first exp(-x), then exp(x): no error
    right = -torch.tensor(-1.0).exp()
    assert not torch.allclose(inputs.grad, right.expand(3), rtol=0.1)


def test_apply_activation_checkpointing():
    model = nn.Sequential(Counting(), nn.Sequential(Counting(), nn.Identity()))
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Counting | nn.Sequential))
    assert type(model) is nn.Sequential  # the root, although check_fn chose it
    assert isinstance(model[0], CheckpointWrapper) and isinstance(model[1], CheckpointWrapper)
    assert isinstance(model[1]._checkpoint_wrapped_module[0], CheckpointWrapper)
    assert isinstance(model[1]._checkpoint_wrapped_module[1], nn.Identity)


def test_wrapper_keeps_names_in_state_dicts():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1] = checkpoint_wrapper(model[1])
    assert list(model.state_dict()) == ["0.weight", "1.weight"]
    assert list(model[1].state_dict()) == [name for name, _ in model[1].named_parameters()] == ["weight"]
    # Called on a module around the wrapper, named_parameters does show it.
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "1._checkpoint_wrapped_module.weight"]
    model.load_state_dict({"0.weight": torch.ones(4, 4), "1.weight": torch.ones(4, 4)})


# Meta devices


def test_to_empty():
    with torch.device("meta"):
        module = nn.BatchNorm1d(4)
    parameter, buffer = module.weight, module.running_var
    with pytest.raises(NotImplementedError):
        module.to("cpu")
    module.to_empty(device="cpu")
    assert module.weight.device.type == module.running_var.device.type == "cpu"
    assert module.running_var is not buffer and buffer.device.type == "meta" and parameter is not None
    with torch.no_grad():
        module.weight.fill_(7.0)
        module.running_var.fill_(7.0)
    module.reset_parameters()
    assert module.weight.tolist() == module.running_var.tolist() == [1.0] * 4


def test_to_empty_does_not_copy():
    module = nn.BatchNorm1d(4)
    storages = {tensor.untyped_storage().data_ptr() for tensor in module.state_dict().values()}
    calls = []

    class Spy(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Spy():
        module.to_empty(device="cpu")
    assert storages.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in module.state_dict().values())
    assert "aten::empty_like" in calls and not [name for name in calls if "copy" in name]


# Distributed checkpoints, on four real processes


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))


def sharded(mesh):
    model = net()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


FULL = StateDictOptions(full_state_dict=True)
FOLDERS: list[Path] = []  # one, made before the processes are


def whole(model, optimizer):
    """Every value of the model and of its optimizer, whole, by name."""
    states, options = get_state_dict(model, optimizer, options=FULL)
    found = {name: tensor.tolist() for name, tensor in states.items()}
    for name, state in options["state"].items():
        found[f"{name}.exp_avg"] = state["exp_avg"].tolist()
    return found


def wrappers(mesh):
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

    def both(model):
        parallelize_module(model, square["tp"], {"0": ColwiseParallel(use_local_output=True)})
        return fully_shard(model, mesh=square["dp"])

    return {
        "fully_shard": lambda model: fully_shard(model, mesh=mesh),
        "fsdp1": lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True),
        "ddp": DistributedDataParallel,
        "fully_shard and tp": both,
        "tp": lambda model: parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": ColwiseParallel()}),
    }


def across_parallelisms(mesh):
    """A trained fully_shard model's state, saved, and loaded under every other form of parallelism."""
    folder = FOLDERS[0] / "across"
    model = sharded(mesh)
    optimizer = trained(model)
    states, options = get_state_dict(model, optimizer)
    dcp.save({"model": states, "optimizer": options}, checkpoint_id=folder)
    results = {"right": whole(model, optimizer)}
    for name, wrap in wrappers(mesh).items():
        other = net()
        for parameter in other.parameters():
            nn.init.zeros_(parameter)
        other = wrap(other)
        fresh = torch.optim.AdamW(other.parameters(), lr=0.1)
        states, options = get_state_dict(other, fresh)
        dcp.load({"model": states, "optimizer": options}, checkpoint_id=folder)
        set_state_dict(other, fresh, model_state_dict=states, optim_state_dict=options)
        results[name] = whole(other, fresh)
    results["files"] = sorted(file.name for file in folder.iterdir())
    return results


def on_fewer_ranks(mesh):
    """The same checkpoint, loaded by two ranks."""
    model = sharded(mesh)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    states, options = get_state_dict(model, optimizer)
    dcp.load({"model": states, "optimizer": options}, checkpoint_id=FOLDERS[0] / "across")
    set_state_dict(model, optimizer, model_state_dict=states, optim_state_dict=options)
    return whole(model, optimizer)


def own_shards(mesh):
    """How much each rank wrote, of a tensor that is sharded and larger than the file's frame; and what load touches."""
    layer = fully_shard(nn.Linear(256, 256, bias=False), mesh=mesh)
    states = get_model_state_dict(layer)
    folder = FOLDERS[0] / "shards"
    dcp.save(states, checkpoint_id=folder)
    dist.barrier()
    mine = sum(file.stat().st_size for file in Path(folder).glob(f"__{dist.get_rank()}_*.distcp"))
    before = layer.weight.to_local().clone()
    address = layer.weight.to_local().data_ptr()
    with torch.no_grad():
        layer.weight.zero_()
    states = get_model_state_dict(layer)
    read = []
    real = dcp.FileSystemReader.read_data

    def spy(self, plan, planner):
        read.extend(tuple(item.lengths) for item in plan.items)
        return real(self, plan, planner)

    dcp.FileSystemReader.read_data = spy
    dcp.load(states, checkpoint_id=folder)
    dcp.FileSystemReader.read_data = real
    after = states["weight"].to_local()
    return mine, after.data_ptr() == address, torch.equal(after, before), read


def full_dicts(mesh):
    """Full state dicts: types, and which rank holds what with cpu_offload."""
    model = sharded(mesh)
    gathered = get_model_state_dict(model, options=FULL)
    offloaded = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    optimizer = trained(model)
    states = get_optimizer_state_dict(model, optimizer, options=FULL)["state"]
    return (
        [(isinstance(tensor, DTensor), tuple(tensor.shape)) for tensor in gathered.values()],
        [isinstance(tensor, DTensor) for state in states.values() for tensor in state.values()],
        {name: (tuple(tensor.shape), tensor.device.type) for name, tensor in offloaded.items()},
    )


def broadcast(mesh):
    """Rank 0 alone holds the weights."""
    model = sharded(mesh)
    state = {name: torch.full((8, 8), 3.0) for name in ("0.weight", "1.weight")} if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    with Log() as log:
        set_model_state_dict(model, state, options=options)
        sent = sizes(log.take())
    return [set(parameter.to_local().flatten().tolist()) for parameter in model.parameters()], sent


def optimizer_between(mesh):
    """A full optimizer state set on a fresh optimizer: before backward, and between backward and step."""
    source = sharded(mesh)
    state = get_optimizer_state_dict(source, trained(source), options=FULL)
    results = []
    for backward in (False, True):
        model = sharded(mesh)
        fresh = torch.optim.AdamW(model.parameters(), lr=0.1)
        if backward:
            model(torch.ones(2, 8)).sum().backward()
        try:
            set_optimizer_state_dict(model, fresh, state, options=FULL)
            results.append([held["step"].item() for held in fresh.state.values()])
        except AssertionError:
            results.append("fails")
    return results


def asynchronous(mesh):
    """A state dict that is changed after async_save has returned."""
    folder = FOLDERS[0] / "async"
    state = {"a": torch.ones(1000)}
    threads, seen = [], threading.Event()
    real = dcp.FileSystemWriter.write_data

    def slow(self, *args, **kwargs):
        threads.append(threading.current_thread() is threading.main_thread())
        assert seen.wait(60)  # a slow disk: the caller is back before this has begun
        return real(self, *args, **kwargs)

    dcp.FileSystemWriter.write_data = slow
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        future = dcp.async_save(state, checkpoint_id=folder)
        done_at_once = future.done()
        state["a"].zero_()
        seen.set()
        future.result()
    loaded = {"a": torch.zeros(1000)}
    dcp.load(loaded, checkpoint_id=folder)
    return done_at_once, threads, loaded["a"].mean().item()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    FOLDERS[:] = [tmp_path_factory.mktemp("checkpoints")]
    first = on_gloo(WORLD, across_parallelisms, own_shards, full_dicts, broadcast, optimizer_between, asynchronous)
    return first | on_gloo(2, on_fewer_ranks)


def test_state_dict_across_parallelisms(ran):
    for results in ran["across_parallelisms"]:
        right = results["right"]
        assert len(right) == 4
        for name in ("fully_shard", "fsdp1", "ddp", "tp", "fully_shard and tp"):
            assert results[name] == right, name
    assert ran["on_fewer_ranks"] == [right, right]


def test_each_rank_saves_its_shards(ran):
    for mine, *_ in ran["own_shards"]:
        assert 256 * 256 * 4 / WORLD <= mine < 256 * 256 * 4 / WORLD + 4096
    assert ran["across_parallelisms"][0]["files"] == [".metadata", *(f"__{rank}_0.distcp" for rank in range(WORLD))]


def test_load_fills_the_given_tensors(ran):
    for _, same, equal, read in ran["own_shards"]:
        assert same and equal and read == [(256 // WORLD, 256)]  # this rank's rows, and no others


class Gathering(Stateful):
    """An object whose state dict is gathered over the ranks, as that of a model may be."""

    def state_dict(self):
        whole = torch.ones(1)
        dist.all_reduce(whole)
        return {"whole": whole}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("same", [True, False])
def test_load_with_other_keys(tmp_path, same):
    def load(mesh):
        dcp.save({"model": Gathering(), "step": torch.zeros(1)}, checkpoint_id=tmp_path)
        state = {"step": torch.zeros(1)}
        if same or dist.get_rank() == 0:
            state["model"] = Gathering()
        dcp.load(state, checkpoint_id=tmp_path)
        return sorted(state)

    if same:
        assert on_gloo(2, load)["load"] == [["model", "step"]] * 2
    else:
        with pytest.raises(gloo.RankFailed):
            on_gloo(2, load, timeout=3)


def test_full_state_dict_holds_no_dtensor(ran):
    for gathered, states, _ in ran["full_dicts"]:
        assert gathered == [(False, (8, 8))] * 2
        assert states and not any(states)


def test_full_state_dict_in_host_memory(ran):
    first, *others = (offloaded for _, _, offloaded in ran["full_dicts"])
    assert first == {"0.weight": ((8, 8), "cpu"), "1.weight": ((8, 8), "cpu")}
    assert others == [{}] * (WORLD - 1)


def test_broadcast_from_rank_0(ran):
    for values, sent in ran["broadcast"]:
        assert values == [{3.0}, {3.0}]
        assert sent[-2:] == [("broadcast", 64)] * 2  # each matrix by itself


def test_optimizer_state_between_backward_and_step(ran):
    assert ran["optimizer_between"] == [[[1.0, 1.0], "fails"]] * WORLD


def test_async_save_copies_first(ran):
    for done_at_once, in_main_thread, mean in ran["asynchronous"]:
        assert not done_at_once and in_main_thread == [False]
        assert mean == 1.0  # what it was when async_save returned
