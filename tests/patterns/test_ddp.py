"""DDP patterns train like one process does: same weights, same global batch, same losses and parameters.

The right values come from plain PyTorch on one process, written here without anything of the patterns.
"""

from __future__ import annotations

import copy
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.patterns.load import load  # noqa: E402
from tests.snippets import gloo  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # float32: sums over ranks are made in another order than over a batch
Batch = tuple[Any, Any]


def small_model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def global_batches(steps: int, size: int, seed: int = 1) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 4, generator=generator), torch.randn(size, 3, generator=generator)) for _ in range(steps)
    ]


def part(batches: Sequence[Batch], rank: int, world: int) -> list[Batch]:
    """A rank's consecutive share of each global batch."""
    return [(inputs.chunk(world)[rank], targets.chunk(world)[rank]) for inputs, targets in batches]


def one_process(model: Any, optimizer: Any, batches: Sequence[Batch]) -> tuple[list[float], list[Any]]:
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weights(model)


def weights(model: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def adam(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=0.05)


def count_reductions(body: Callable[[], None], model: Any) -> list[int]:
    """How many elements each reduction of gradients had while ``body`` ran (a hook that does what DDP does anyway)."""
    sizes: list[int] = []

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are strings
        sizes.append(bucket.buffer().numel())
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    model.register_comm_hook(None, hook)
    body()
    return sizes


def test_basic_loop_equals_one_process() -> None:
    pattern, batches = load("ddp-basic"), global_batches(5, 8)

    def body(rank: int) -> tuple[list[float], list[Any]]:
        gloo.init()
        model = small_model()
        if rank == 1:  # rank 0's weights must win
            torch.nn.init.zeros_(model[0].weight)
        model = pattern["wrap"](model, CPU)
        losses = pattern["train"](model, adam(model.parameters()), part(batches, rank, 2), mse_loss)
        return [loss.item() for loss in losses], weights(model)

    reference = small_model()
    expected, final = one_process(reference, adam(reference.parameters()), batches)
    (first, after), (second, same) = gloo.run(2, body)
    torch.testing.assert_close([(a + b) / 2 for a, b in zip(first, second, strict=True)], expected, **CLOSE)
    torch.testing.assert_close(after, final, **CLOSE)
    assert all(torch.equal(a, b) for a, b in zip(after, same, strict=True))
    assert expected[-1] < expected[0]


def test_accumulation_equals_one_process_and_reduces_once() -> None:
    step, batches = load("ddp-no-sync")["step"], global_batches(6, 8)

    def body(rank: int) -> tuple[float, list[Any], list[int]]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        optimizer, mine, losses = adam(model.parameters()), part(batches, rank, 2), []

        def train() -> None:
            for first in (0, 3):
                losses.append(step(model, optimizer, mine[first : first + 3], mse_loss))

        sizes = count_reductions(train, model)
        return losses[-1].item(), weights(model), sizes

    joined = [
        (torch.cat([x for x, _ in batches[i : i + 3]]), torch.cat([y for _, y in batches[i : i + 3]])) for i in (0, 3)
    ]
    reference = small_model()
    expected, final = one_process(reference, adam(reference.parameters()), joined)
    results = gloo.run(2, body)
    assert sum(loss for loss, _, _ in results) / 2 == pytest.approx(expected[-1], rel=1e-5)
    elements = sum(parameter.numel() for parameter in reference.parameters())
    for _, after, sizes in results:
        torch.testing.assert_close(after, final, **CLOSE)
        assert (
            sum(sizes) == 2 * elements
        )  # two steps of three micro-batches: each gradient travels twice, not six times


def test_heads_used_in_turn_equal_one_process() -> None:
    pattern, batches = load("ddp-unused-parameters"), global_batches(4, 8)
    heads = [(0, 0), (1, 1), (0, 1), (1, 1)]  # (rank 0's, rank 1's): the same, and different ones in one step

    def build() -> Any:
        torch.manual_seed(0)
        body = torch.nn.Linear(4, 8)
        return pattern["TwoHeads"](body, torch.nn.Linear(8, 3), torch.nn.Linear(8, 3))

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(model: Any, rank: int) -> None:
        optimizer = sgd(model)
        for (inputs, targets), chosen in zip(part(batches, rank, 2), heads, strict=True):
            optimizer.zero_grad()
            mse_loss(model(inputs, chosen[rank]), targets).backward()
            optimizer.step()

    def body(rank: int) -> tuple[list[Any], str]:
        gloo.init()
        model = pattern["wrap"](build(), CPU)
        loop(model, rank)
        try:
            loop(DistributedDataParallel(build()), rank)
        except RuntimeError as error:
            return weights(model), str(error)
        return weights(model), "no error"

    reference = build()
    optimizer = sgd(reference)
    for step, chosen in enumerate(heads):
        optimizer.zero_grad()
        for rank in (0, 1):
            inputs, targets = part(batches, rank, 2)[step]
            (mse_loss(reference(inputs, chosen[rank]), targets) / 2).backward()
        optimizer.step()
    for after, error in gloo.run(2, body):
        torch.testing.assert_close(after, weights(reference), **CLOSE)
        assert "Expected to have finished reduction in the prior iteration" in error


def test_static_graph_equals_one_process() -> None:
    pattern, batches = load("ddp-static-graph"), global_batches(4, 8)

    def build(use_reentrant: bool) -> Any:
        torch.manual_seed(0)
        looped = pattern["Looped"](torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), 3, use_reentrant)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), looped, torch.nn.Linear(8, 3))
        model.unused = torch.nn.Linear(2, 2)
        model.forward = lambda inputs: model[2](model[1](model[0](inputs)))
        return model

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def body(rank: int) -> tuple[list[Any], list[Any], str, list[Any]]:
        gloo.init()
        mine = part(batches, rank, 2)
        plain = build(True)
        seen = pattern["used_parameters"](plain, mine, lambda model, batch: mse_loss(model(batch[0]), batch[1]))
        model = pattern["wrap"](plain, CPU)
        one_process(model, sgd(model), mine)
        not_reentrant = pattern["wrap"](build(False), CPU)
        one_process(not_reentrant, sgd(not_reentrant), mine)
        told = [model._get_ddp_logging_data().get("can_set_static_graph")]
        usual = DistributedDataParallel(build(True), find_unused_parameters=True)
        try:
            one_process(usual, sgd(usual), mine)
        except RuntimeError as error:
            return weights(model), weights(not_reentrant), str(error), [len(seen), "unused.weight" in max(seen), *told]
        return weights(model), weights(not_reentrant), "no error", []

    reference = build(False)
    one_process(reference, sgd(reference), batches)
    for after, not_reentrant, error, (sets, unused, told) in gloo.run(2, body):
        torch.testing.assert_close(after, weights(reference), **CLOSE)
        torch.testing.assert_close(not_reentrant, weights(reference), **CLOSE)
        assert "Expected to mark a variable ready only once" in error  # the same without static_graph
        assert (sets, unused) == (1, False)
        assert told is None  # the documented recipe


def test_documented_key_of_static_graphs_never_shows() -> None:
    def body(rank: int) -> list[bool]:
        gloo.init()
        answers = []
        for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
            model = DistributedDataParallel(small_model(), **options)
            # 120 iterations: DDP notes the first ones and then each hundredth.
            for inputs, targets in part(global_batches(1, 8) * 120, rank, 2):
                mse_loss(model(inputs), targets).backward()
            data = model._get_ddp_logging_data()
            assert int(data["iteration"]) >= 100
            answers.append("can_set_static_graph" in data)
        return answers

    assert gloo.run(2, body) == [[False, False, False]] * 2


def test_compressed_gradients_are_close_and_the_hook_runs() -> None:
    compress, batches = load("ddp-comm-hook")["compress"], global_batches(1, 8)

    def body(rank: int) -> list[Any]:
        gloo.init()
        model = compress(DistributedDataParallel(small_model()))
        ((inputs, targets),) = part(batches, rank, 2)
        mse_loss(model(inputs), targets).backward()
        return [parameter.grad for parameter in model.parameters()]

    reference = small_model()
    mse_loss(reference(batches[0][0]), batches[0][1]).backward()
    exact = [parameter.grad for parameter in reference.parameters()]
    first, second = gloo.run(2, body)
    # fp16 has 11 bits: half a unit in the last place per rank and once for the sum.
    torch.testing.assert_close(first, exact, rtol=2e-3, atol=2e-4)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(gradient, gradient.half().float()) for gradient in first)  # it did travel as fp16
    assert not all(torch.equal(gradient, gradient.half().float()) for gradient in exact)


def test_bf16_hook_needs_nccl_or_xccl() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def body(rank: int) -> str:
        gloo.init()
        model = DistributedDataParallel(small_model())
        with pytest.raises(TypeError, match=r"NCCL 2\.10") as caught:
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return type(caught.value).__name__

    assert gloo.run(2, body) == ["TypeError"] * 2


def test_compiled_loop_equals_one_process() -> None:
    wrap, batches = load("ddp-compile")["wrap"], global_batches(3, 8)

    class Wide(torch.nn.Module):  # 2.2 MB of parameters: more than DDP's first bucket of 1 MiB
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.ModuleList(
                [torch.nn.Linear(4, 512), torch.nn.Linear(512, 1024), torch.nn.Linear(1024, 3)]
            )

        def forward(self, inputs: Any) -> Any:
            for layer in self.layers:
                inputs = torch.tanh(layer(inputs))
            return inputs

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def body(rank: int) -> tuple[list[Any], list[str], list[int]]:
        gloo.init()
        graphs: list[list[str]] = [[], [], []]

        def backend_into(place: list[str]) -> Callable[[Any, Any], Any]:
            def backend(graph: Any, inputs: Any) -> Any:  # captures and splits like any backend, then runs as it is
                place.append(graph.code)
                return graph

            return backend

        model, compiled = wrap(Wide(), CPU, backend=backend_into(graphs[0]))
        one_process(compiled, sgd(model), part(batches, rank, 2))
        torch.compile(Wide(), backend=backend_into(graphs[1]))(batches[0][0])
        _, sequential = wrap(small_model(), CPU, backend=backend_into(graphs[2]))
        sequential(batches[0][0])
        return weights(model), list(model.module.state_dict()), [len(found) for found in graphs]

    reference = Wide()
    _, final = one_process(reference, sgd(reference), batches)
    for after, names, (of_ddp, alone, of_sequential) in gloo.run(2, body):
        torch.testing.assert_close(after, final, **CLOSE)
        assert names == list(reference.state_dict())
        assert alone == 1
        assert of_ddp > 1  # split at the buckets
        assert of_sequential == 0  # the pattern's warning: a class of torch.nn at the top is not compiled


def test_sampler_gives_each_sample_once_and_a_new_order() -> None:
    pattern = load("ddp-sampler")

    def body(rank: int) -> list[list[int]]:
        gloo.init()
        loader, sampler = pattern["loader_for"](list(range(16)), 2)
        seen = torch.cat(list(pattern["epochs"](loader, sampler, 2))).tolist()
        without = torch.cat([*loader, *loader]).tolist()  # set_epoch not called: one order for both
        return [seen[:8], seen[8:], without[:8], without[8:]]

    first, second = gloo.run(2, body)
    for epoch in (0, 1):
        assert sorted(first[epoch] + second[epoch]) == list(range(16))
    assert first[0] != first[1]
    assert first[2] == first[3]


def test_zero_equals_one_process_and_shards_the_states() -> None:
    pattern, batches = load("ddp-zero"), global_batches(5, 8)

    def body(rank: int) -> tuple[list[Any], int]:
        gloo.init()
        model, optimizer = pattern["build"](small_model(), CPU, 0.05)
        pattern["train"](model, optimizer, part(batches, rank, 2), mse_loss)
        states = optimizer.optim.state
        return weights(model), sum(state["exp_avg"].numel() for state in states.values())

    reference = small_model()
    _, final = one_process(reference, adam(reference.parameters()), batches)
    results = gloo.run(2, body)
    for after, _ in results:
        torch.testing.assert_close(after, final, **CLOSE)
    shares = [share for _, share in results]
    assert sum(shares) == sum(parameter.numel() for parameter in reference.parameters())
    assert all(share > 0 for share in shares)


def test_zero_checkpoint_resumes_where_it_stopped(tmp_path: Path) -> None:
    build, train = load("ddp-zero")["build"], load("ddp-zero")["train"]
    pattern, batches, path = load("zero-checkpoint"), global_batches(6, 8), tmp_path / "checkpoint.pt"

    def body(rank: int) -> tuple[list[Any], list[str]]:
        gloo.init()
        mine = part(batches, rank, 2)
        model, optimizer = build(small_model(), CPU, 0.05)
        train(model, optimizer, mine[:3], mse_loss)
        pattern["save"](path, model, optimizer)
        model, optimizer = build(torch.nn.Sequential(*map(copy.deepcopy, small_model())), CPU, 0.05)
        pattern["load"](path, model, optimizer)
        train(model, optimizer, mine[3:], mse_loss)
        return weights(model), list(torch.load(path, weights_only=True)["model"])

    reference = small_model()
    _, final = one_process(reference, adam(reference.parameters()), batches)
    for after, names in gloo.run(2, body):
        torch.testing.assert_close(after, final, **CLOSE)
        assert names == list(reference.state_dict())


def test_checkpoint_resumes_where_it_stopped(tmp_path: Path) -> None:
    pattern, batches, path = load("ddp-checkpoint"), global_batches(6, 8), tmp_path / "checkpoint.pt"

    def body(rank: int) -> tuple[list[Any], list[str]]:
        gloo.init()
        mine = part(batches, rank, 2)
        model = DistributedDataParallel(small_model())
        optimizer = adam(model.parameters())
        one_process(model, optimizer, mine[:3])
        pattern["save"](path, model, optimizer)
        blank = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        model, optimizer = pattern["resume"](path, blank, CPU, adam)
        one_process(model, optimizer, mine[3:])
        return weights(model), list(torch.load(path, weights_only=True)["model"])

    reference = small_model()
    _, final = one_process(reference, adam(reference.parameters()), batches)
    for after, names in gloo.run(2, body):
        torch.testing.assert_close(after, final, **CLOSE)
        assert names == list(reference.state_dict())


def test_evaluation_counts_every_sample_once() -> None:
    evaluate = load("ddp-evaluate")["evaluate"]
    generator = torch.Generator().manual_seed(3)
    data = [(torch.randn(4, generator=generator), torch.randn(3, generator=generator)) for _ in range(7)]

    def build() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))  # with buffers, as DDP sends them

    def sums(outputs: Any, targets: Any) -> Any:
        return (outputs - targets).square().sum(1).sum()

    def trained(rank: int) -> Any:
        model = build()
        model[1].running_mean += 0.5 + rank  # after a training step each rank has its own
        return model

    def body_of(samples: int, batch_size: int) -> Callable[[int], tuple[float, bool]]:
        def body(rank: int) -> tuple[float, bool]:
            gloo.init()
            model = DistributedDataParallel(build())
            model.module.load_state_dict(trained(rank).state_dict())
            return evaluate(model, data[:samples], batch_size, CPU, sums), model.training

        return body

    # (samples, batch size): two batches on each rank, four and three, one and none.
    for samples, batch_size in ((7, 2), (7, 1), (1, 1)):
        reference = trained(0).eval()
        inputs, targets = torch.stack([x for x, _ in data[:samples]]), torch.stack([y for _, y in data[:samples]])
        expected = (reference(inputs) - targets).square().sum(1).mean().item()
        assert gloo.run(2, body_of(samples, batch_size)) == [(pytest.approx(expected, rel=1e-6), True)] * 2


def test_ddp_sends_buffers_in_the_first_forward_of_an_evaluation_only() -> None:
    """What the comment in ddp-evaluate says about DDP's own forward."""

    def body(rank: int) -> list[float]:
        gloo.init()
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)))
        inputs, seen = torch.ones(2, 4), []
        model(inputs).sum().backward()
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model.module[1].running_mean.fill_(5.0 + rank)
                model(inputs)
                seen.append(model.module[1].running_mean[0].item())
        return seen

    assert gloo.run(2, body) == [[5.0, 5.0], [5.0, 6.0]]


def test_ddp_with_rpc_equals_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = load("ddp-rpc")
    module = types.ModuleType(pattern["__name__"])  # RPC sends functions by the name of their module
    module.__dict__.update(pattern)
    for name in ("Table", "shared_table"):
        assert getattr(module, name).__module__ == module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    steps, lr, world = 3, 0.1, 3
    generator = torch.Generator().manual_seed(2)
    targets = torch.randn(2, steps, 4, 3, generator=generator)
    # Each trainer its own rows: what one trainer writes to the table the other never reads, whoever comes first.
    ids = [torch.randint(5 * rank, 5 * rank + 5, (steps, 4), generator=generator) for rank in (0, 1)]

    def parts() -> tuple[Any, Any]:
        torch.manual_seed(0)
        return torch.nn.Embedding(10, 8), torch.nn.Linear(8, 3)

    def body(rank: int) -> list[Any]:
        os.environ["TP_SOCKET_IFNAME"] = "lo"
        table, head = parts()
        if rank == world - 1:
            pattern["serve"](table, rank, world)
            return weights(table)
        mine = list(zip(ids[rank], targets[rank], strict=True))
        return weights(pattern["train"](head, CPU, mine, mse_loss, lr, rank, world))

    table, head = parts()
    for step in range(steps):
        for parameter in [*table.parameters(), *head.parameters()]:
            parameter.grad = None
        for rank in (0, 1):
            mse_loss(head(table(ids[rank][step])), targets[rank][step]).backward()
        with torch.no_grad():
            for parameter in table.parameters():
                parameter -= lr * parameter.grad  # each trainer's own gradient: the sum
            for parameter in head.parameters():
                parameter -= lr * parameter.grad / 2  # DDP: the mean
    # The server's functions are executed on the copies that the pattern's own globals name.
    pattern["TABLES"].clear()
    first, second, served = gloo.run(world, body)
    torch.testing.assert_close(first, weights(head), **CLOSE)
    torch.testing.assert_close(second, weights(head), **CLOSE)
    torch.testing.assert_close(served, weights(table), **CLOSE)
