"""Uneven inputs: after training with Join, parameters are those of one process that saw what the ranks saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.join import Join, Joinable, JoinHook  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.patterns.load import load  # noqa: E402
from tests.snippets import gloo  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
STEPS = (2, 5, 3)  # of ranks 0, 1, 2
Batch = tuple[Any, Any]


def small_model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def batches_of(rank: int, steps: Sequence[int] = STEPS) -> list[Batch]:
    generator = torch.Generator().manual_seed(10 + rank)
    return [
        (torch.randn(4, 4, generator=generator), torch.randn(4, 3, generator=generator)) for _ in range(steps[rank])
    ]


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.05)


def weights(model: Any) -> list[Any]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def one_process(
    epochs: int = 1,
    steps: Sequence[int] = STEPS,
    stop: Callable[[Sequence[int]], int] = max,
    optimizer_of: Callable[[Any], Any] = adam,
    divide_by_all: bool = True,
) -> list[Any]:
    """Gradients of the ranks that still have inputs, added up and divided by the number of all ranks, or of those."""
    model = small_model()
    optimizer = optimizer_of(model.parameters())
    data = [batches_of(rank, steps) for rank in range(len(steps))]
    for _ in range(epochs):
        for step in range(stop(steps)):
            optimizer.zero_grad()
            divisor = len(steps) if divide_by_all else sum(step < number for number in steps)
            for rank in range(len(steps)):
                if step < steps[rank]:
                    inputs, targets = data[rank][step]
                    (mse_loss(model(inputs), targets) / divisor).backward()
            optimizer.step()
    return weights(model)


def differ(first: list[Any], second: list[Any]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(first, second, strict=True))


def plain_loop(model: Any, optimizer: Any, batches: Sequence[Batch]) -> None:
    for inputs, targets in batches:
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()


def test_ddp_with_join_equals_one_process_over_two_epochs() -> None:
    pattern = load("join-ddp")

    def body(rank: int) -> list[Any]:
        gloo.init()
        model = DistributedDataParallel(small_model(), bucket_cap_mb=1e-4)  # several buckets
        optimizer = adam(model.parameters())
        step_too = pattern["StepToo"](model, optimizer)
        for _ in range(2):
            pattern["train"](model, step_too, optimizer, batches_of(rank), mse_loss)
        assert not model._join_config.enable
        return weights(model)

    for after in gloo.run(3, body):
        torch.testing.assert_close(after, one_process(epochs=2), **CLOSE)


@pytest.mark.parametrize("divide_by_all", [True, False])
def test_join_of_the_model_divides_as_it_is_told(divide_by_all: bool) -> None:
    train = load("ddp-join")["train"]

    def body(rank: int) -> list[Any]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        train(model, adam(model.parameters()), batches_of(rank), mse_loss, divide_by_all)
        assert not model._join_config.enable
        return weights(model)

    for after in gloo.run(3, body):
        torch.testing.assert_close(after, one_process(divide_by_all=divide_by_all), **CLOSE)


def test_joining_the_model_alone_is_right_once_and_wrong_in_the_next_epoch() -> None:
    def body(rank: int) -> tuple[list[Any], list[Any], list[Any]]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        optimizer = adam(model.parameters())
        with model.join():
            plain_loop(model, optimizer, batches_of(rank))
        first = weights(model)
        with model.join():
            plain_loop(model, optimizer, batches_of(rank)[:1])
            middle = weights(model)  # before the last rank's copy goes to all
            plain_loop(model, optimizer, batches_of(rank)[1:])
        return first, middle, weights(model)

    results = gloo.run(3, body)
    for first, _, _ in results:
        torch.testing.assert_close(first, one_process(epochs=1), **CLOSE)
    assert differ(results[0][1], results[1][1]) > 0.01  # the copies are no longer equal after one step
    assert differ(results[1][2], one_process(epochs=2)) > 0.01

    def stateless(rank: int) -> list[Any]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            with model.join():
                plain_loop(model, optimizer, batches_of(rank))
        return weights(model)

    expected = one_process(epochs=2, optimizer_of=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    for after in gloo.run(3, stateless):  # nothing to remember: right again
        torch.testing.assert_close(after, expected, **CLOSE)


def test_ddp_and_zero_in_one_join_equal_one_process_over_two_epochs() -> None:
    pattern = load("join-ddp-zero")

    def body(rank: int) -> tuple[list[Any], list[int]]:
        gloo.init()
        model = DistributedDataParallel(small_model(), bucket_cap_mb=1e-4)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.05)
        owners = [optimizer._param_to_rank[parameter] for parameter in model.parameters()]
        set_gradients = pattern["SetGradients"](model)
        for _ in range(2):
            pattern["train"](model, set_gradients, optimizer, batches_of(rank), mse_loss)
        assert not model._join_config.enable
        return weights(model), owners

    for after, owners in gloo.run(3, body):
        assert set(owners) == {0, 1, 2}  # the ranks that run out first do own parameters
        torch.testing.assert_close(after, one_process(epochs=2), **CLOSE)


def test_documented_join_of_ddp_and_zero_repeats_old_gradients() -> None:
    def body(rank: int) -> tuple[list[Any], list[int]]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.05)
        with Join([model, optimizer]):
            plain_loop(model, optimizer, batches_of(rank))
        return weights(model), [optimizer._param_to_rank[parameter] for parameter in model.parameters()]

    results = gloo.run(3, body)
    assert differ(results[0][0], one_process()) > 0.01
    # What it computes instead: a parameter whose rank has run out is updated with that rank's last gradient.
    owners = results[0][1]
    model = small_model()
    optimizer = adam(model.parameters())
    last: list[Any] = [None] * len(owners)
    for step in range(max(STEPS)):
        optimizer.zero_grad()
        for rank in range(3):
            if step < STEPS[rank]:
                inputs, targets = batches_of(rank)[step]
                (mse_loss(model(inputs), targets) / 3).backward()
        for index, parameter in enumerate(model.parameters()):
            if step >= STEPS[owners[index]]:
                parameter.grad = last[index]
            last[index] = parameter.grad.clone()
        optimizer.step()
    for after, _ in results:
        torch.testing.assert_close(after, weights(model), **CLOSE)


def test_detection_costs_nothing_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    train = load("join-enable-off")["train"]

    def body_of(steps: tuple[int, int]) -> Callable[[int], tuple[list[Any], int, int]]:
        def body(rank: int) -> tuple[list[Any], int, int]:
            gloo.init()
            model = DistributedDataParallel(small_model())
            calls = []
            real = dist.all_reduce

            def counted(*arguments: Any, **keywords: Any) -> Any:
                calls.append(1)
                return real(*arguments, **keywords)

            monkeypatch.setattr(dist, "all_reduce", counted)
            train(model, adam(model.parameters()), batches_of(rank, steps), mse_loss, CPU)
            during = len(calls)
            model(batches_of(rank, steps)[0][0])
            return weights(model), during, len(calls) - during

        return body

    for after, during, later in gloo.run(2, body_of((3, 3))):
        torch.testing.assert_close(after, one_process(steps=(3, 3)), **CLOSE)
        assert (during, later) == (1, 0)  # only the question itself
    for after, during, later in gloo.run(2, body_of((2, 4))):
        torch.testing.assert_close(after, one_process(steps=(2, 4)), **CLOSE)
        assert during >= 1 + 2 * 4
        assert later == 0


def test_join_stays_on_after_its_block() -> None:
    def body(rank: int) -> list[bool]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        with Join([model]):
            plain_loop(model, adam(model.parameters()), batches_of(rank))
        after = model._join_config.enable
        Join([model], enable=False)
        return [after, model._join_config.enable]

    assert gloo.run(2, body) == [[True, False]] * 2


def test_every_rank_stops_with_the_first() -> None:
    train = load("join-throw-early")["train"]

    def body(rank: int) -> tuple[list[int], list[Any], str]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        optimizer = adam(model.parameters())
        steps = [train(model, optimizer, batches_of(rank), mse_loss) for _ in range(2)]
        after = weights(model)
        assert not model._join_config.enable
        try:  # an error of the loop itself is not swallowed
            train(model, optimizer, [(torch.ones(4, 5), torch.ones(4, 3))], mse_loss)
        except RuntimeError as error:
            return steps, after, str(error)
        return steps, after, "no error"

    for steps, after, error in gloo.run(3, body):
        assert steps == [2, 2]
        torch.testing.assert_close(after, one_process(epochs=2, stop=min), **CLOSE)
        assert "shapes cannot be multiplied" in error


def test_early_termination_raises_on_every_rank() -> None:
    def body(rank: int) -> str:
        gloo.init()
        model = DistributedDataParallel(small_model())
        with pytest.raises(RuntimeError) as caught, Join([model], throw_on_early_termination=True):
            plain_loop(model, adam(model.parameters()), batches_of(rank))
        return str(caught.value)

    first, *others = gloo.run(3, body)
    assert first == "Rank 0 exhausted all inputs."
    assert others == ["Detected at least one rank that exhausted inputs. Throwing across all ranks."] * 2


def test_own_joinable_counts_what_all_ranks_saw() -> None:
    counter_of = load("join-own-joinable")["SampleCounter"]

    def alone(rank: int) -> list[float]:
        gloo.init()
        counter, seen = counter_of(CPU), []
        with Join([counter]):
            for number in range(STEPS[rank]):
                counter.add(10 + number)
                seen.append(counter.total.item())
        return [*seen, counter.total.item()]

    # By hand: steps 0 to 4 add 3 * 10, 3 * 11, 2 * 12, 13, 14; at the end all ranks know the last sum.
    running = [30.0, 63.0, 87.0, 100.0, 114.0]
    assert gloo.run(3, alone) == [[*running[:2], 114.0], [*running[:5], 114.0], [*running[:3], 114.0]]

    def with_model(rank: int) -> tuple[list[Any], float]:
        gloo.init()
        model = DistributedDataParallel(small_model())
        optimizer, counter = torch.optim.SGD(model.parameters(), lr=0.1), counter_of(CPU)
        with Join([model, counter]):
            for inputs, targets in batches_of(rank):
                plain_loop(model, optimizer, [(inputs, targets)])
                counter.add(len(inputs))
        return weights(model), counter.total.item()

    expected = one_process(optimizer_of=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    for after, total in gloo.run(3, with_model):
        torch.testing.assert_close(after, expected, **CLOSE)
        assert total == 4 * sum(STEPS)

    def in_a_group(rank: int) -> float:
        gloo.init()
        group = dist.new_group([1, 2])
        if rank == 0:
            return 0.0
        counter = counter_of(CPU, group)
        with Join([counter]):
            for _ in range(STEPS[rank]):
                counter.add(1)
        return counter.total.item()

    assert gloo.run(3, in_a_group) == [0.0, 8.0, 8.0]


def test_divisor_of_a_hook_is_the_world_even_if_join_is_told_otherwise() -> None:
    """The comment in ddp-comm-hook: with a hook, divide_by_initial_world_size=False has no effect."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def body(rank: int) -> tuple[list[Any], list[Any]]:
        gloo.init()
        results = []
        for hook in (False, True):
            model = DistributedDataParallel(small_model())
            if hook:
                model.register_comm_hook(None, allreduce_hook)
            with Join([model], divide_by_initial_world_size=False):
                plain_loop(model, torch.optim.SGD(model.parameters(), lr=0.1), batches_of(rank))
            results.append(weights(model))
        return results[0], results[1]

    initial = one_process(optimizer_of=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    for without, with_hook in gloo.run(3, body):
        torch.testing.assert_close(with_hook, initial, **CLOSE)
        assert differ(without, initial) > 1e-3


def test_members_of_one_join_must_share_a_group() -> None:
    class Silent(Joinable):
        def __init__(self, group: Any) -> None:
            super().__init__()
            self.group = group

        def join_hook(self, **kwargs: Any) -> Any:
            return JoinHook()

        @property
        def join_device(self) -> Any:
            return CPU

        @property
        def join_process_group(self) -> Any:
            return self.group

    def body(rank: int) -> str:
        gloo.init()
        with pytest.raises(ValueError) as caught:
            Join([Silent(dist.group.WORLD), Silent(dist.new_group())])
        return str(caught.value)

    assert gloo.run(2, body) == ["Using join context manager with multiple process groups"] * 2
