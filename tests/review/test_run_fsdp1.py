"""Mistakes with FSDP1 made for real by two processes over Gloo on PyTorch 2.13.0: each errs, hangs or trains wrongly, and the right form does not."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tests.review.sharded import CPU, batch, fails, fsdp1, net, run, sharded  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: E402

pytestmark = pytest.mark.torch


def test_FSD301_each_rank_clips_by_another_norm() -> None:
    def body():
        model = fsdp1(net())
        model(batch()).sum().backward()
        other = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()
        return other, model.clip_grad_norm_(1e9).item()

    (one, right), (other, again) = run(body)
    assert right == again and abs(one - other) > 1e-3 and right > max(one, other)


def test_FSD302_the_optimizer_of_replaced_parameters() -> None:
    def body():
        module = net()
        optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
        model = fsdp1(module)
        before = [p.detach().clone() for p in model.parameters()]
        model(batch()).sum().backward()
        optimizer.step()
        return all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    assert run(body) == [True, True]


def test_FSD306_a_plain_scaler_disagrees() -> None:
    def body(kind):
        model = fsdp1(net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = kind("cpu", init_scale=2.0)
        scaler.scale(model(batch()).sum()).backward()
        if dist.get_rank() == 0:
            next(model.parameters()).grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    assert run(lambda: body(torch.amp.GradScaler)) == [1.0, 2.0]
    assert run(lambda: body(ShardedGradScaler)) == [1.0, 1.0]


def test_FSD308_FSD444_the_shape_is_lost() -> None:
    def body():
        model = fsdp1(net(), use_orig_params=True)
        return [p.ndim for p in model.parameters()], sum(p.numel() for p in model.parameters())

    assert [shapes for shapes, _ in run(body)] == [[1] * 4, [1] * 4]
    assert all(count < 40 for _, count in run(body))


def test_FSD305_FSD309_FSD315() -> None:
    def body():
        model = fsdp1(nn.Sequential(FSDP(nn.Linear(4, 4), device_id=CPU), nn.Linear(4, 4)))
        model(batch()).sum().backward()
        said = []
        for call in (
            lambda: model[0].clip_grad_norm_(1.0),
            lambda: model[0].no_sync().__enter__(),
            lambda: model.set_requires_gradient_sync(False),
        ):
            try:
                call()
            except (RuntimeError, AttributeError) as error:
                said.append(f"{type(error).__name__} {error}")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fsdp1(net(), sharding_strategy=torch.distributed.fsdp.ShardingStrategy.NO_SHARD)
        return said, any("NO_SHARD" in str(one.message) for one in seen)

    for said, warned in run(body):
        assert warned and "root" in said[0] and "root" in said[1] and "AttributeError" in said[2]


def test_FSD304_FSD310_what_is_only_allocated() -> None:
    def body(fills: bool, **options):
        def fill(module):
            module.to_empty(device="cpu")
            if fills:
                nn.init.constant_(module.weight, 3.0)

        with torch.device("meta" if dist.get_rank() else "cpu"):
            module = nn.Linear(4, 4, bias=False)
        if dist.get_rank() == 0:
            nn.init.constant_(module.weight, 3.0)
        model = fsdp1(module, param_init_fn=fill if dist.get_rank() else None, **options)
        with FSDP.summon_full_params(model):
            return torch.equal(model.weight, torch.full((4, 4), 3.0))

    assert run(lambda: body(False)) == [False, False] and run(lambda: body(True)) == [True, True]
    fails(lambda: body(False, sync_module_states=True), "device_id")  # the CPU does not count as a device here


def test_FSD311_FSD430_one_unit_is_uniform() -> None:
    def frozen(**options):
        module = net()
        module.first.requires_grad_(False)
        fsdp1(module, **options)

    fails(frozen, "uniform `requires_grad`")
    assert run(lambda: frozen(use_orig_params=True)) == [None, None]

    def cast():
        module = net()
        module.last.half()
        fsdp1(module)

    fails(cast, "uniform dtype")


def test_FSD312_names_of_flat_parameters() -> None:
    def body(**options):
        return [name for name, _ in fsdp1(net(), **options).named_parameters()]

    assert all("_flat_param" in name for names in run(body) for name in names)
    assert any("bias" in name for name in run(lambda: body(use_orig_params=True))[0])


def test_FSD313_torch_autograd_grad() -> None:
    from torch.nn.parallel import DistributedDataParallel as DDP

    def body():
        model = DDP(net())
        return [one.sum().item() for one in torch.autograd.grad(model(batch()).sum(), list(model.parameters()))]

    one, other = run(body)
    assert one != other  # backward() gives the same on both

    def fsdp2():
        model = sharded(net())
        torch.autograd.grad(model(batch()).sum(), list(model.parameters()))

    fails(fsdp2, "not have been used in the graph")

    def flat():
        model = fsdp1(nn.Linear(4, 4))
        (grad,) = torch.autograd.grad(model(batch()).sum(), list(model.parameters()))
        return grad.numel(), grad.sum().item()

    (whole, one), (_, other) = run(flat)
    assert whole == 20 and one != other  # neither sharded nor reduced


def test_FSD317_Muon_wants_matrices() -> None:
    def body():
        torch.optim.Muon(fsdp1(nn.Linear(4, 4, bias=False), use_orig_params=True).parameters())

    fails(body, "2D")
