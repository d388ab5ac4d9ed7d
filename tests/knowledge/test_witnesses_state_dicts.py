"""Claims about the state-dict helpers, run on PyTorch 2.13: on a fake process group of eight ranks, and on four real processes."""

import dataclasses

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Shard, distribute_tensor  # noqa: E402
from witness_cases import collectives, models, plain, warned  # noqa: E402
from witness_tools import Log, on_gloo  # noqa: E402


def quietly(call):
    return warned(call)[0]


def test_state_dict_options():
    assert dataclasses.asdict(StateDictOptions()) == {
        "full_state_dict": False,
        "cpu_offload": False,
        "ignore_frozen_params": False,
        "keep_submodule_prefixes": True,
        "strict": True,
        "broadcast_from_rank0": False,
        "flatten_optimizer_state_dict": False,
        "dsd_fqn_modifiers": "_fqn_modifiers",
    }
    model = plain()
    model[0].requires_grad_(False)
    kept = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))
    assert set(kept) == {"1.weight", "1.bias"}


def test_strict_loading():
    model = plain()
    state = get_model_state_dict(model)
    state["new"] = state.pop("0.bias")
    result = set_model_state_dict(model, dict(state), options=StateDictOptions(strict=False))
    assert (result.missing_keys, result.unexpected_keys) == (["0.bias"], ["new"])
    with pytest.raises(RuntimeError, match="Missing key"):
        set_model_state_dict(model, dict(state))


def test_optimizer_state_missing():
    frozen, model = plain(), plain()
    frozen[0].requires_grad_(False)
    state = get_optimizer_state_dict(frozen, torch.optim.AdamW(frozen.parameters()))
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(RuntimeError, match="Missing optimizer state for parameter"):
        set_optimizer_state_dict(model, optimizer, state)
    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(strict=False))


def test_optimizer_state_initialised():
    model = plain()
    optimizer = torch.optim.AdamW(model.parameters())
    before = [parameter.clone() for parameter in model.parameters()]
    assert not optimizer.state
    state = get_optimizer_state_dict(model, optimizer)
    assert list(state["state"]) == state["param_groups"][0]["params"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert all(map(torch.equal, before, model.parameters())) and model[0].weight.grad is None
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    assert "state.0.weight.exp_avg" in flat and "param_groups.1.bias.lr" in flat


def test_submodules_argument():
    model = plain()
    _, said = warned(lambda: get_model_state_dict(model, submodules={model[0]}))
    assert any(text.startswith("FutureWarning: Getting submodules only") for text in said)


def test_canonical_names():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    names = {"0.weight", "0.bias", "1.weight", "1.bias"}
    wrapped = quietly(lambda: torch.compile(nn.Sequential(checkpoint_wrapper(nn.Linear(8, 8)), nn.Linear(8, 8))))
    assert {name.split(".")[0] for name in wrapped.state_dict()} == {"_orig_mod"}
    assert set(get_model_state_dict(wrapped)) == names
    in_place = plain()
    in_place.compile()
    assert set(in_place.state_dict()) == names


def test_state_dicts_are_sharded(fake):
    layer = fully_shard(nn.Linear(16, 16), mesh=fake)
    layer(torch.ones(2, 16))
    assert not isinstance(layer.weight, DTensor)  # whole: the root after forward
    with Log() as log:
        for state in (layer.state_dict(), get_model_state_dict(layer)):
            assert all(isinstance(value, DTensor) for value in state.values())
    assert not log.events


def test_plain_state_dict_refused(fake):
    layer = fully_shard(nn.Linear(16, 16), mesh=fake)
    with pytest.raises(RuntimeError, match="got mixed torch"):
        layer.load_state_dict(nn.Linear(16, 16).state_dict())
    layer.load_state_dict(
        {n: distribute_tensor(t, fake, [Shard(0)]) for n, t in nn.Linear(16, 16).state_dict().items()}
    )


def set_full(mesh):
    _, model = models(mesh)
    full = {name: torch.full(value.shape, 1.0 + dist.get_rank()) for name, value in plain().state_dict().items()}
    moved = collectives(lambda: set_model_state_dict(model, dict(full), options=StateDictOptions(full_state_dict=True)))
    values = model[0].weight.full_tensor().unique().tolist()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    with torch.device("meta"):
        empty = plain()
    for layer in empty:
        fully_shard(layer, mesh=mesh)
    fully_shard(empty, mesh=mesh)
    set_model_state_dict(empty, full if dist.get_rank() == 0 else {}, options=options)
    return {"moved": moved, "values": values, "meta": empty[1].weight.full_tensor().unique().tolist()}


@pytest.fixture(scope="module")
def ranks():
    return on_gloo(4, set_full)


def test_full_state_dict_is_sharded(ranks):
    for rank in ranks["set_full"]:
        assert rank["moved"] == {"scatter_": 4}
        assert rank["values"] == [1.0]  # rank 0's data, though each rank had its own


def test_full_state_dict_on_meta(ranks):
    assert all(rank["meta"] == [1.0] for rank in ranks["set_full"])
