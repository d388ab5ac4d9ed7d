"""The FSDP2 patterns on real processes: what a training step consists of.

Each training is compared with one process that has all the data. float32 differs by the order of sums only (``models.CLOSE``).
"""

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

from tests.snippets import gloo  # noqa: E402

from . import models  # noqa: E402
from .load import load  # noqa: E402
from .models import Trained, ids, mesh, next_token, reference, same, seeded, sharded, train  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = 3


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in the ranks: in 16 bits, two threads' partial sums round differently from one's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_hand(dtype: Any, batches: Any, scale: float = 1.0) -> Trained:
    """Mixed precision as MixedPrecisionPolicy's docstring describes it: a copy in ``dtype`` computes, float32 is summed."""
    model = seeded(models.Transformer)
    optimizer, losses = models.momentum(model), []
    for step in zip(*batches, strict=True):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for batch in step:
            worker = copy.deepcopy(model).to(dtype)
            worker.zero_grad()
            loss = next_token(worker, batch)
            (loss * scale).backward()
            losses.append(loss.item())
            for parameter, low in zip(model.parameters(), worker.parameters(), strict=True):
                parameter.grad += low.grad.float() / scale / len(step)
        optimizer.step()
    return Trained(torch.tensor(losses).reshape(-1, len(batches)).mean(dim=1).tolist(), models.whole(model))


def test_mixed_precision(one_thread: None) -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, list[Any]]:
        gloo.init()
        shard = load("fsdp2-mixed-precision")["shard_mixed"]
        model = seeded(models.Transformer)
        shard(model, model.layers, mesh(2))
        seen: list[Any] = []
        handle = model.layers[0].up.register_forward_hook(
            lambda module, _, out: seen.extend([module.weight.dtype, out.dtype])
        )
        seen.append(model(batches[rank, 0]).dtype)
        handle.remove()
        seen.append({parameter.dtype for parameter in model.state_dict().values()})
        with pytest.raises(ValueError, match="float32"):
            low = seeded(models.Transformer).bfloat16()
            shard(low, low.layers, mesh(2))
        return train(model, models.momentum(model), batches[rank]), seen

    results = gloo.run(2, body)
    assert results[0][1] == [torch.bfloat16, torch.bfloat16, torch.float32, {torch.float32}]
    same([result[0] for result in results], by_hand(torch.bfloat16, batches))  # bit for bit, where measured
    with pytest.raises(AssertionError):  # 8e-4 off: the policy does something
        same([result[0] for result in results], reference(seeded(models.Transformer), batches), rtol=1e-4, atol=1e-4)


def test_fp16_scaler(one_thread: None) -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, float, tuple[bool, float]]:
        gloo.init()
        names = load("fsdp2-fp16-scaler")
        model = seeded(models.Transformer)
        names["shard_fp16"](model, model.layers, mesh(2))
        optimizer, scaler = models.momentum(model), names["make_scaler"]()
        losses = []
        for batch in batches[rank]:
            loss = names["train_step"](model, optimizer, scaler, next_token, batch, max_norm=1e9)
            losses.append(loss.item())
        trained, scale = Trained(losses, models.whole(model)), scaler.get_scale()
        # One rank overflows: every rank skips the step and halves the scale.
        wild = 1e9 if rank == 1 else 1.0
        names["train_step"](model, optimizer, scaler, lambda m, b: next_token(m, b) * wild, batches[rank, 0])
        after = models.whole(model)
        skipped = all(torch.equal(after[name], tensor) for name, tensor in trained.parameters.items())
        return trained, scale, (skipped, scaler.get_scale())

    results = gloo.run(2, body)
    scale = results[0][1]
    assert scale == 65536.0
    assert [result[2] for result in results] == [(True, scale / 2)] * 2
    same([result[0] for result in results], by_hand(torch.float16, batches, scale))  # bit for bit, where measured


def test_optimizer() -> None:
    batches = ids(2, STEPS, 2)
    make = load("fsdp2-optimizer")["make_optimizer"]

    def plain(model: nn.Module) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        flat = [name for name in named if name.endswith("bias") or "norm" in name]
        groups = [
            {"params": [p for name, p in named.items() if name not in flat], "weight_decay": 0.1},
            {"params": [named[name] for name in flat], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=0.01)

    def body(rank: int) -> tuple[Trained, list[int], set[tuple[int, ...]]]:
        gloo.init()
        early = seeded(models.Transformer)
        with pytest.raises(ValueError, match="after fully_shard"):
            make(early)
        stale = torch.optim.AdamW(early.parameters(), lr=0.01)  # what the check is against: steps, and changes nothing
        fully_shard(early, mesh=mesh(2))
        before = models.whole(early)
        next_token(early, batches[rank, 0]).backward()
        stale.step()
        assert all(torch.equal(tensor, before[name]) for name, tensor in models.whole(early).items())
        model = seeded(models.Transformer)
        fully_shard(model, mesh=mesh(2))
        model(batches[rank, 0])
        with pytest.raises(ValueError, match="before the first forward"):
            make(model)  # the root's parameters are gathered now
        model = seeded(models.Transformer)
        fully_shard(model, mesh=mesh(2))
        optimizer = make(model, lr=0.01)
        trained = train(model, optimizer, batches[rank])
        state = optimizer.state[
            model.head.weight if isinstance(model.head.weight, DTensor) else model.get_parameter("head.weight")
        ]
        return (
            trained,
            [len(group["params"]) for group in optimizer.param_groups],
            {tuple(state["exp_avg"].to_local().shape)},
        )

    results = gloo.run(2, body)
    assert results[0][2] == {(models.VOCABULARY // 2, models.WIDTH)}, "states are sharded as the parameters are"
    same([result[0] for result in results], reference(seeded(models.Transformer), batches, optimizer=plain))


@pytest.mark.parametrize(("norm_type", "limit"), [(2.0, 0.5), (float("inf"), 0.05)])
def test_clip(norm_type: float, limit: float) -> None:
    batches = ids(2, STEPS, 2)

    def clipped(model: nn.Module) -> tuple[list[float], dict[str, torch.Tensor]]:
        optimizer, norms = models.momentum(model), []
        for step in zip(*batches, strict=True):
            models.over_ranks(next_token)(model, step).backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit, norm_type).item())
            optimizer.step()
            optimizer.zero_grad()
        return norms, models.whole(model)

    def body(rank: int) -> tuple[list[float], dict[str, torch.Tensor]]:
        gloo.init()
        model = seeded(models.Transformer)
        fully_shard(model, mesh=mesh(2))
        optimizer, step = models.momentum(model), load("fsdp2-clip")["train_step"]
        norms = [step(model, optimizer, next_token, batch, limit, norm_type) for batch in batches[rank]]
        return norms, models.whole(model)

    right = clipped(seeded(models.Transformer))
    assert min(right[0]) > limit, "the clipping does something"
    results = gloo.run(2, body)
    same([Trained(*result) for result in results], Trained(*right))
    assert results[0][0] == results[1][0], "the same norm on every rank"


def accumulating(step: Callable[..., Any], world: int, make_mesh: Callable[[], Any], **options: Any) -> list[Any]:
    """Train with a pattern's step of three micro-batches; also the bytes of gradients after the second backward."""
    batches = ids(world, STEPS, 3, 2)

    def body(rank: int) -> tuple[Trained, int]:
        gloo.init()
        model = seeded(models.Transformer)
        device_mesh = make_mesh()
        for layer in model.layers:
            fully_shard(layer, mesh=device_mesh)
        fully_shard(model, mesh=device_mesh)
        optimizer, sizes = models.momentum(model), []

        def watched(model: Any, batch: torch.Tensor) -> torch.Tensor:
            state = model.layers[0]._get_fsdp_state()._fsdp_param_groups[0]
            sizes.append(
                sum(
                    p._unsharded_param.grad.numel()
                    if hasattr(p, "_unsharded_param") and p._unsharded_param.grad is not None
                    else p.unsharded_accumulated_grad.numel()
                    if p.unsharded_accumulated_grad is not None
                    else 0
                    for p in state.fsdp_params
                )
            )
            return next_token(model, batch)

        losses = [step(model, optimizer, watched, list(micros), **options).item() for micros in batches[rank]]
        return Trained(losses, models.whole(model)), sizes[2]

    def one_step(model: nn.Module, micros: torch.Tensor) -> torch.Tensor:
        return torch.stack([next_token(model, micro) for micro in micros]).mean()

    results = gloo.run(world, body)
    same([result[0] for result in results], reference(seeded(models.Transformer), batches, one_step))
    return [result[1] for result in results]


LAYER = sum(parameter.numel() for parameter in models.Block().parameters())


def test_accumulate() -> None:
    """Whole gradients stay on the rank between micro-batches, with the parameters kept or not."""
    assert accumulating(load("fsdp2-accumulate")["train_step"], 2, lambda: mesh(2)) == [LAYER, LAYER]
    assert accumulating(load("fsdp2-accumulate")["train_step"], 2, lambda: mesh(2), keep_parameters=True) == [
        LAYER,
        LAYER,
    ]


def test_accumulate_reduced() -> None:
    """No whole gradient is left between micro-batches."""
    assert accumulating(load("fsdp2-accumulate-reduced")["train_step"], 2, lambda: mesh(2)) == [0, 0]


def test_accumulate_hybrid() -> None:
    """The same under HSDP; all-reduce once, reduce-scatter every time, so that no whole gradient is kept."""

    def hybrid() -> Any:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))

    assert accumulating(load("fsdp2-accumulate-hybrid")["train_step"], 4, hybrid) == [0, 0, 0, 0]


def test_accumulate_by_tokens() -> None:
    batches = ids(2, STEPS, 3, 2)
    for rank, step, micro in torch.cartesian_prod(*map(torch.arange, (2, STEPS, 3))).tolist():
        batches[rank, step, micro, :, 6 - 2 * rank - micro :] = 0  # padding: 1 to 5 predicted tokens, by rank and batch

    def loss_sum(model: Any, batch: torch.Tensor) -> torch.Tensor:
        logits = model(batch)[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(logits, batch[:, 1:].flatten(), ignore_index=0, reduction="sum")

    def count(batch: torch.Tensor) -> int:
        return int((batch[:, 1:] != 0).sum())

    def body(rank: int) -> Trained:
        gloo.init()
        model = sharded(seeded(models.Transformer), 2)
        optimizer, step = models.momentum(model), load("fsdp2-accumulate-by-tokens")["train_step"]
        losses = [
            step(model, optimizer, loss_sum, count, list(micros), torch.device("cpu")) for micros in batches[rank]
        ]
        return Trained(losses, models.whole(model))

    model = seeded(models.Transformer)
    steps = [batch.flatten(0, 1) for batch in batches.transpose(0, 1).flatten(1, 2)]
    right = train(model, models.momentum(model), steps, lambda m, batch: loss_sum(m, batch) / count(batch))
    same(gloo.run(2, body), right)


def test_activation_checkpointing() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, list[int], bool]:
        gloo.init()
        model = seeded(models.Transformer)
        calls = [0, 0]
        for i, block in enumerate(model.layers):
            block.register_forward_pre_hook(lambda *_, i=i: calls.__setitem__(i, calls[i] + 1))
        load("fsdp2-activation-checkpointing")["shard_checkpointed"](model, model.layers, mesh(2), every=2)
        trained = train(model, models.momentum(model), batches[rank])
        return trained, calls, "layers.0._checkpoint_wrapped_module.up.weight" in dict(model.named_parameters())

    results = gloo.run(2, body)
    assert results[0][1] == [2 * STEPS, STEPS], "the first block ran again in backward, the second did not"
    assert results[0][2], "the wrapper shows in the names of parameters, but not in those of the state dict:"
    same([result[0] for result in results], reference(seeded(models.Transformer), batches))


def test_prefetch() -> None:
    batches = ids(2, STEPS, 2)

    def build() -> nn.Module:
        return models.Transformer(layers=4)

    def body(rank: int) -> tuple[Trained, list[str], list[str]]:
        from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

        gloo.init()
        model = seeded(build)
        sharded(model, 2)
        pattern = load("fsdp2-prefetch")
        pattern["prefetch"](list(model.layers), 2)
        start = pattern["start_step"]
        events: list[str] = []
        gather = FSDPParamGroup.unshard

        def noted(self: Any, async_op: bool = False) -> None:
            if not self.is_unsharded and self._all_gather_result is None:
                events.append(f"gather {self._module_fqn or 'root'}")
            gather(self, async_op)

        FSDPParamGroup.unshard = noted
        for i, layer in enumerate(model.layers):
            layer.register_forward_hook(lambda *_, i=i: events.append(f"run {i}"))
            layer.down.register_full_backward_hook(lambda *_, i=i: events.append(f"back {i}"))
        start(model)
        events.append("batch")
        loss = next_token(model, batches[rank, 0])
        forward, events[:] = list(events), []
        loss.backward()
        backward = list(events)
        model.zero_grad()
        return train(model, models.momentum(model), batches[rank]), forward, backward

    results = gloo.run(2, body)
    assert results[0][1] == [
        *("gather root", "batch", "gather layers.0", "gather layers.1", "gather layers.2", "run 0"),
        *("gather layers.3", "run 1", "run 2", "run 3"),
    ]
    assert results[0][2] == [
        *("gather layers.3", "gather layers.2", "gather layers.1", "back 3"),
        *("gather layers.0", "back 2", "back 1", "back 0"),
    ]
    same([result[0] for result in results], reference(seeded(build), batches))


def test_compile() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, int, int]:
        import torch._inductor.config as inductor
        from torch._dynamo.utils import counters

        inductor.compile_threads = 1  # no pool of workers beside a rank
        counters.clear()  # a fork begins with what the tests before it have counted
        if not any(
            map(shutil.which, ("c++", "g++", "clang++"))
        ):  # Inductor's kernels need a compiler, the tracing none
            nn.Module.compile = functools.partialmethod(nn.Module.compile, backend="eager")
        gloo.init()
        model = seeded(models.Transformer)
        load("fsdp2-compile")["shard_compiled"](model, model.layers, mesh(2))
        trained = train(model, models.momentum(model), batches[rank])
        return trained, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    results = gloo.run(2, body)
    assert results[0][1:] == (1, 0), "one graph for all blocks"
    # Fused kernels: other sums inside a block as well.
    same([result[0] for result in results], reference(seeded(models.Transformer), batches), rtol=1e-4, atol=1e-5)
