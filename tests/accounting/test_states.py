"""Gradients and optimizer states: a real training step of a small model, sharded by the real fully_shard."""

from __future__ import annotations

from typing import Any

import pytest

from shardguide.accounting import Layout, Request, lives, optimizer_support, per_rank, support

from . import small
from .oracle import describe, dp_mesh, fake_world, held, local, run_of, shard, state_bytes

pytestmark = pytest.mark.torch

LAYOUTS = [(Layout(1, 1), 0), (Layout(1, 4), 0), (Layout(1, 4), 3), (Layout(1, 13), 9), (Layout(2, 4), 7)]


def gradient_bytes(module: Any) -> int:
    """Bytes of the gradients' storages on this rank, each storage once: parameters of a group share one."""
    storages = {}
    for parameter in module.parameters():
        if parameter.grad is not None:
            storage = local(parameter.grad).untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(("layout", "rank"), LAYOUTS, ids=str)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("policy", [("", ""), ("bfloat16", "float32"), ("bfloat16", "")])
def test_gradients_are_padded(layout: Layout, rank: int, frozen: bool, policy: tuple[str, str]) -> None:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    module = small.make()
    if frozen:
        module.blocks[0].requires_grad_(False)
        module.blocks[1].norm.requires_grad_(False)
    request = Request(describe(module, small.UNITS), layout, mp_param_dtype=policy[0], mp_reduce_dtype=policy[1])
    run = run_of(per_rank(request), rank)
    param_dtype, reduce_dtype = (getattr(torch, name) if name else None for name in policy)
    with fake_world(layout, rank) as mesh:
        mp_policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
        shard(module, small.UNITS, dp_mesh(mesh, layout), mp_policy=mp_policy)
        small.step(module)
        assert run.gradient_bytes == gradient_bytes(module)
        assert (run.parameters, run.stored_parameters, run.parameter_bytes) == held(module)


OPTIMIZERS: list[tuple[str, str, dict[str, Any]]] = [
    ("adam", "Adam", {}),
    ("adamw", "AdamW", {}),
    ("adamw", "AdamW", {"amsgrad": True}),
    ("adamw", "AdamW", {"fused": True}),
    ("adamw", "AdamW", {"foreach": True}),
    ("sgd", "SGD", {}),
    ("sgd", "SGD", {"momentum": 0.9}),
    ("sgd", "SGD", {"momentum": 0.9, "foreach": True}),
    ("adagrad", "Adagrad", {}),
    ("rmsprop", "RMSprop", {}),
    ("rmsprop", "RMSprop", {"momentum": 0.9, "centered": True}),
    ("adamax", "Adamax", {}),
    ("nadam", "NAdam", {}),
    ("radam", "RAdam", {}),
    ("adadelta", "Adadelta", {}),
    ("asgd", "ASGD", {}),
]


@pytest.mark.parametrize(("layout", "rank"), LAYOUTS, ids=str)
@pytest.mark.parametrize(("name", "kind", "hyper"), OPTIMIZERS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_optimizer_state_is_not_padded(
    name: str, kind: str, hyper: dict[str, Any], layout: Layout, rank: int, dtype: str
) -> None:
    import torch

    module = small.make().to(getattr(torch, dtype))
    module.blocks[0].up.requires_grad_(False)
    request = Request(describe(module, small.UNITS), layout, optimizer=name, hyper=hyper)
    assert support(request).status == "exact"
    run = run_of(per_rank(request), rank)
    with fake_world(layout, rank) as mesh:
        shard(module, small.UNITS, dp_mesh(mesh, layout))
        optimizer = getattr(torch.optim, kind)([p for p in module.parameters() if p.requires_grad], **hyper)
        small.step(module)
        optimizer.step()
        assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)


def test_without_sharding_everything_is_whole() -> None:
    import torch

    module = small.make()
    for name, kind, hyper in [*OPTIMIZERS, ("rprop", "Rprop", {}), ("adafactor", "Adafactor", {})]:
        request = Request(describe(module, small.UNITS), Layout(8, 1), "none", optimizer=name, hyper=hyper)
        (run,) = per_rank(request)
        optimizer = getattr(torch.optim, kind)(module.parameters(), **hyper)
        module.zero_grad()
        small.step(module)
        optimizer.step()
        assert (run.first_rank, run.last_rank) == (0, 7)
        assert run.parameters == run.stored_parameters == sum(p.numel() for p in module.parameters())
        assert run.gradient_bytes == sum(p.grad.untyped_storage().nbytes() for p in module.parameters())
        assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer), name


@pytest.mark.parametrize(("name", "kind"), [("adafactor", "Adafactor"), ("rprop", "Rprop")])
def test_optimizers_that_fully_shard_breaks(name: str, kind: str) -> None:
    import torch

    module = small.make()
    found = support(Request(describe(module, small.UNITS), Layout(1, 4), optimizer=name))
    assert found.status == "refused"
    error, _, message = found.error.partition(": ")
    with fake_world(Layout(1, 4), 1) as mesh:
        shard(module, small.UNITS, mesh)
        optimizer = getattr(torch.optim, kind)(module.parameters())
        small.step(module)
        with pytest.raises(RuntimeError) as raised:
            optimizer.step()
    assert type(raised.value).__name__ == error
    assert message in str(raised.value)
    assert optimizer_support(name, "2.13.0", "none").status == "exact"


@pytest.mark.parametrize("world", [1, 2, 4, 12, 13])
def test_muon(world: int) -> None:
    import torch
    from torch import nn

    layout = Layout(1, world)
    module = nn.Sequential(nn.Linear(12, 28, bias=False), nn.Linear(28, 12, bias=False))
    request = Request(describe(module, []), layout, optimizer="muon")
    found = support(request)
    with fake_world(layout, world - 1) as mesh:
        shard(module, [], mesh)
        optimizer = torch.optim.Muon(module.parameters())
        module(torch.randn(2, 12)).sum().backward()
        if world > 12:  # the second weight has 12 rows: a rank is left without any
            assert found.status == "refused"
            with pytest.raises(RuntimeError) as raised:
                optimizer.step()
            assert found.error.partition(": ")[2] in str(raised.value)
            return
        optimizer.step()
        run = run_of(per_rank(request), world - 1)
        assert found.status == "exact"
        assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)


def test_muon_with_a_companion() -> None:
    import torch

    module = small.make()
    layout = Layout(1, 4)
    bare = support(Request(describe(module, small.UNITS), layout, optimizer="muon"))
    assert bare.status == "refused"
    with pytest.raises(ValueError) as raised:
        torch.optim.Muon(module.parameters())
    assert str(raised.value).startswith("Muon only supports 2D parameters whereas we found a parameter with size: ")
    words = "Muon only supports 2D parameters whereas we found a parameter with size: torch.Size("
    assert bare.error.startswith(f"ValueError: {words}")

    hyper = {"others": "adamw", "other_names": ("embed.weight",)}
    request = Request(describe(module, small.UNITS), layout, optimizer="muon", hyper=hyper)
    assert support(request).status == "exact"
    run = run_of(per_rank(request), 3)
    with fake_world(layout, 3) as mesh:
        shard(module, small.UNITS, mesh)
        first = {n: p for n, p in module.named_parameters() if p.ndim == 2 and n != "embed.weight"}
        muon = torch.optim.Muon(first.values())
        adamw = torch.optim.AdamW([p for n, p in module.named_parameters() if n not in first])
        small.step(module)
        muon.step()
        adamw.step()
        total = [sum(pair) for pair in zip(state_bytes(muon), state_bytes(adamw), strict=True)]
    assert [run.optimizer_bytes, run.optimizer_scalar_bytes] == total


def test_releases() -> None:
    assert optimizer_support("muon", "2.8.0").status == "refused"
    assert optimizer_support("adafactor", "2.4.1", "none").status == "refused"
    assert optimizer_support("adamw", "2.8.0").status == "exact"
    assert optimizer_support("adafactor", "2.9.0").status == "not worked out"
    assert optimizer_support("adamw8bit", "2.13.0").status == "not worked out"
    assert optimizer_support("nonsense", "2.13.0").status == "not worked out"


def test_offloaded_gradients_lose_their_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a CPU mesh .to("cpu") returns the padded view itself; here it copies, as it does from an accelerator.
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy

    plain_to = torch.Tensor.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args == (torch.device("cpu"),):
            kwargs["copy"] = True
        return plain_to(self, *args, **kwargs)

    layout, rank = Layout(1, 4), 3
    module = small.make()
    ignored = module.blocks[2].up.bias
    request = Request(
        describe(module, small.UNITS, ignored={"blocks.2.up.bias"}), layout, optimizer="adamw", offload=True
    )
    run = run_of(per_rank(request), rank)
    with fake_world(layout, rank) as mesh:
        shard(module, small.UNITS, mesh, offload_policy=CPUOffloadPolicy(pin_memory=False), ignored_params={ignored})
        optimizer = torch.optim.AdamW(module.parameters())
        monkeypatch.setattr(torch.Tensor, "to", to)
        small.step(module)
        optimizer.step()
        assert run.gradient_bytes == gradient_bytes(module)
        assert run.gradient_bytes < run.parameter_bytes
        assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)
    whole = ignored.numel() * 4
    buffers = 3 * 3 * 4
    assert run.device_bytes == 4 * whole + buffers  # the ignored parameter, its gradient and two states
    total = run.parameter_bytes + run.gradient_bytes + run.optimizer_bytes + run.optimizer_scalar_bytes
    assert run.host_bytes == total - 4 * whole
    assert lives(request)["gradient_bytes"] == "host"
    assert lives(request._replace(offload=False))["gradient_bytes"] == "device"
