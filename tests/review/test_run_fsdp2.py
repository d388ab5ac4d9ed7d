"""Mistakes with FSDP2 and gradient scaling made for real by two processes over Gloo on PyTorch 2.13.0: each errs, hangs or trains wrongly, and the right form does not."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from tests.review.sharded import Tied, batch, fails, mesh, net, run, sharded  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

pytestmark = pytest.mark.torch


def test_FSD316_FSD421_the_optimizer_at_the_wrong_time() -> None:
    def late(reshard: bool):
        model = net()
        fully_shard(model.first, mesh=mesh())
        fully_shard(model, mesh=mesh())  # last belongs to the root
        with torch.no_grad():
            model(batch())
        if reshard:
            model.reshard()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = model.last.weight.detach().clone() if reshard else None
        model(batch()).sum().backward()
        optimizer.step()
        kinds = {type(p).__name__ for group in optimizer.param_groups for p in group["params"]}
        grads = [p.grad is None for group in optimizer.param_groups for p in group["params"]]
        changed = before is None or not torch.equal(before.to_local(), model.last.weight.to_local())
        return sorted(kinds), sum(grads), changed

    assert run(lambda: late(False)) == [(["DTensor", "Parameter"], 2, True)] * 2
    assert run(lambda: late(True)) == [(["DTensor"], 0, True)] * 2

    def early(wrong: bool):
        model = sharded(net())
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model(batch()).sum().backward()  # gradients to step with
        loss = model(batch()).sum()
        if wrong:
            optimizer.step()
        optimizer.zero_grad()
        loss.backward()
        return model.first.weight.grad.full_tensor()

    assert not torch.allclose(run(lambda: early(True))[0], run(lambda: early(False))[0])


def test_FSD422_a_method_past_the_hooks() -> None:
    from torch.distributed.fsdp import register_fsdp_forward_method

    def body(register: bool):
        model = net()
        fully_shard(model.last, mesh=mesh())
        fully_shard(model, mesh=mesh())
        if register:
            register_fsdp_forward_method(model, "encode")
        return tuple(model.encode(batch()).shape)

    fails(lambda: body(False), "DTensor")
    assert run(lambda: body(True)) == [(2, 4)] * 2


def test_FSD423_a_part_before_the_whole() -> None:
    def body(wrong: bool):
        model = sharded(net())
        if wrong:
            model.first(batch())
        model(batch())

    fails(lambda: body(True), "lazily initialized")
    assert run(lambda: body(False)) == [None, None]


def test_FSD424_tied_weights() -> None:
    def body(together: bool):
        model = Tied()
        fully_shard([model.embed, model.head] if together else model.embed, mesh=mesh())
        fully_shard(model, mesh=mesh())
        model(torch.tensor([1, 2])).sum().backward()

    fails(lambda: body(False), "shared")
    assert run(lambda: body(True)) == [None, None]


def test_FSD425_FSD426_which_dimension_shards() -> None:
    def body(shape, names):
        given = init_device_mesh("cpu", shape, mesh_dim_names=names) if shape else None
        model = fully_shard(nn.Linear(4, 4), mesh=given) if given else fully_shard(nn.Linear(4, 4), mesh=mesh())
        return model.weight.to_local().shape[0]

    assert run(lambda: body((2, 1), ("shard", "replicate"))) == [4, 4]  # not sharded at all
    assert run(lambda: body((1, 2), ("replicate", "shard"))) == [2, 2]
    assert run(lambda: body((2, 1), ("replicate", "shard"))) == [4, 4]  # whole on each "node"
    assert run(lambda: body(None, None)) == [2, 2]  # without the mesh: over all ranks


def test_FSD427_FSD428_nothing_is_broadcast() -> None:
    def body(seed: int):
        torch.manual_seed(seed * (1 + dist.get_rank()))
        model = nn.Linear(4, 4)
        model.register_buffer("shift", torch.full((1,), float(dist.get_rank())))
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")))
        return model.weight.to_local().detach().clone(), model.shift.item()

    (one, first), (other, second) = run(lambda: body(3))
    assert not torch.equal(one, other) and (first, second) == (0.0, 1.0)
    (one, _), (other, _) = run(lambda: body(0))
    assert torch.equal(one, other)


def test_FSD413_FSD429_to_empty_keeps_nothing() -> None:
    def body():
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(64, 64))
            model.register_buffer("inv_freq", torch.arange(4.0), persistent=False)
        sharded(model, "0")
        model.to_empty(device="cpu")
        with torch.no_grad():
            model.inv_freq.fill_(7.0)
        model.load_state_dict({name: value.detach() + 0 for name, value in model.state_dict().items()})
        return "inv_freq" in model.state_dict(), model.inv_freq.tolist(), model[0].weight.is_meta

    assert run(body) == [(False, [7.0] * 4, False)] * 2


def test_FSD430_two_dtypes_in_a_group() -> None:
    def body(apart: bool):
        model = net()
        model.last.half()
        if apart:
            fully_shard(model.last, mesh=mesh())
        fully_shard(model, mesh=mesh())
        model.first(batch()) if apart else model(batch())

    fails(lambda: body(False), "uniform original parameter dtype")


def test_FSD431_names_change_under_the_optimizer() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    def body():
        model = sharded(net())
        before = [name for name, _ in model.named_parameters()]
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Linear))
        model(batch()).sum().backward()
        return before == [name for name, _ in model.named_parameters()]

    assert run(body) == [False, False]


class ViewBlock(nn.Module):
    """A block that returns a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x))).view(-1, 4)


class ViewNet(nn.Module):
    """Adds to what its blocks return, in place or not."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([ViewBlock(), ViewBlock()])
        self.in_place = in_place

    def forward(self, x):
        for block in self.blocks:
            y = block(x)
            if self.in_place:
                y += x
            else:
                y = y + x
            x = y
        return x


def test_FSD432_a_view_that_is_changed_in_place() -> None:
    def body(in_place: bool):
        model = ViewNet(in_place)
        for block in model.blocks:
            fully_shard(block, mesh=mesh())
        fully_shard(model, mesh=mesh())
        model(batch()).sum().backward()

    fails(lambda: body(True), "setStorage")  # the parameters were not gathered for backward
    assert run(lambda: body(False)) == [None, None]


def test_FSD433_FSD436_FSD442() -> None:
    def body():
        model = sharded(net())
        return hasattr(model, "_fsdp_wrapped_module"), getattr(model, "no_sync", nullcontext) is nullcontext

    assert run(body) == [(False, True)] * 2

    def scalar(value):
        model = net()
        model.scale = nn.Parameter(value)
        fully_shard(model, mesh=mesh())

    fails(lambda: scalar(torch.tensor(1.0)), "scalar")
    assert run(lambda: scalar(torch.tensor([1.0]))) == [None, None]


def test_FSD403_one_group_gathers_all() -> None:
    from torch.distributed.tensor.debug import CommDebugMode

    def body(*parts: str):
        model = net()
        for part in parts:
            fully_shard(getattr(model, part), mesh=mesh())
        fully_shard(model, mesh=mesh())
        with CommDebugMode() as counts, torch.no_grad():
            model(batch())
        return counts.get_total_counts()

    assert run(body) == [1, 1] and run(lambda: body("first", "last")) == [2, 2]


def test_FSD407_parents_first() -> None:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x)

    def body(turned: bool):
        model = nn.Sequential(Block())
        modules = list(model.modules())
        for part in reversed(modules) if turned else modules:
            if isinstance(part, (Block, nn.Linear)):
                fully_shard(part, mesh=mesh())
        fully_shard(model, mesh=mesh())
        model(batch()).sum().backward()

    assert all(isinstance(one, str) and "Error" in one for one in run(lambda: body(False)))
    assert run(lambda: body(True)) == [None, None]


def test_FSD420_gradients_never_reduced() -> None:
    def body(again: bool):
        model = sharded(net())
        model.set_requires_gradient_sync(False)
        model(batch()).sum().backward()
        model.set_requires_gradient_sync(again)
        model(batch()).sum().backward()
        return model.first.weight.grad is None

    assert run(lambda: body(False)) == [True, True] and run(lambda: body(True)) == [False, False]


def test_FSD440_clipped_while_scaled() -> None:
    def norm(unscale: bool) -> float:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        scaler.scale(model(torch.ones(2, 4)).sum()).backward()
        if unscale:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = [p.detach().clone() for p in model.parameters()]
        scaler.step(optimizer)
        return sum((a - b).square().sum().item() for a, b in zip(before, model.parameters(), strict=True)) ** 0.5

    assert norm(True) == pytest.approx(1.0, rel=1e-3) and norm(False) < 1e-4


def test_FSD441_float16_loses_small_gradients() -> None:
    def body(scale: float):
        model = net()
        policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
        fully_shard(model, mesh=mesh(), mp_policy=policy)
        (model(batch()).float().sum() * 1e-9 * scale).backward()
        return model.first.weight.grad.full_tensor().abs().max().item()

    assert run(lambda: body(1.0)) == [0.0, 0.0] and all(one > 0 for one in run(lambda: body(2.0**16)))


def test_FSD443_every_backward_communicates() -> None:
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.nn.parallel import DistributedDataParallel as DDP

    def body(hold: bool):
        model = DDP(net())
        with CommDebugMode() as counts, model.no_sync() if hold else nullcontext():
            model(batch()).sum().backward()
        one = model.module.first.weight.grad.clone()
        del counts
        return one

    plain, held = run(lambda: body(False)), run(lambda: body(True))
    assert torch.equal(*plain) and not torch.equal(*held)


def test_FSD446_groups_that_are_not_passed() -> None:
    model = net()
    groups = [{"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    plain = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    assert {group["weight_decay"] for group in plain.param_groups} == {0.1}
    assert {group["weight_decay"] for group in torch.optim.AdamW(groups, weight_decay=0.1).param_groups} == {0.0}
