"""Claims about Join, Joinable and JoinHook, and about uneven inputs under FSDP, run on PyTorch 2.13 by two processes."""

import importlib
import inspect
import warnings
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.join import Join, Joinable, JoinHook  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402
from witness_answers import Two, all_say, gradient, number, of, said, weight  # noqa: E402


class Count(Joinable):
    """One all-reduce in each iteration, shadowed by its hook; it notes what happens."""

    def __init__(self, name="count", group=None, prepared=True):
        if prepared:
            super().__init__()
        self.name, self.group, self.events, self.kwargs = name, group or dist.group.WORLD, [], None

    def __call__(self):
        work = Join.notify_join_context(self)
        self.events.append(work)
        ones = torch.ones(1)
        dist.all_reduce(ones, group=self.group)
        return ones.item()

    def join_hook(self, **kwargs):
        self.kwargs = kwargs
        return CountHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group


class CountHook(JoinHook):
    def __init__(self, count):
        self.count = count

    def main_hook(self):
        self.count.events.append("main")
        ORDER.append(self.count.name)
        dist.all_reduce(torch.zeros(1), group=self.count.group)

    def post_hook(self, is_last_joiner):
        self.count.events.append(("post", is_last_joiner))


ORDER: list[str] = []


def join(rank):
    gloo.init()
    facts = {}
    model = DDP(nn.Sequential(weight(), weight()))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for _ in range(2 + 3 * rank):
            model(number(rank)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    facts["weights"] = [p.item() for p in model.parameters()]
    facts["divided"] = [divided(rank, flag) for flag in (True, False)]
    facts["plain_ddp"] = last_joiner(rank)
    facts["momentum"] = momentum(rank)
    facts["stale"] = stale()
    facts["ddp_join"] = isinstance(model.join(), Join)
    own(rank, facts)
    fsdp = fully_shard(nn.Linear(4, 4), mesh=init_device_mesh("cpu", (2,)))
    facts["fsdp"] = said(Join, [fsdp])
    facts["agreed"] = [agreed(3 + rank, op) for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX)]
    facts["dummy"] = dummy(rank)
    return facts


def agreed(batches, op):
    """How many steps each rank makes when all ask in every step whether to go on."""
    steps = 0
    while True:
        left = torch.tensor([float(steps < batches)])
        dist.all_reduce(left, op=op)
        if not left.item():
            return steps
        steps += 1


def dummy(rank):
    """The gradient on both ranks when rank 0 has run out and runs a batch for nothing."""
    model = fully_shard(nn.Linear(1, 2, bias=False), mesh=init_device_mesh("cpu", (2,)))
    (model(torch.tensor([[4.0]])).sum() * rank).backward()
    return model.weight.grad.full_tensor().flatten().tolist()


def divided(rank, by_initial):
    """The gradient of rank 1's second input, when rank 0 has joined; its input is 2."""
    model, seen = DDP(weight()), []
    with model.join(divide_by_initial_world_size=by_initial):
        for _ in range(1 + rank):
            seen.append(gradient(model, model(number(rank)).sum()))
    return seen


def last_joiner(rank):
    """Every rank steps by itself; after the context all have rank 1's weight, the last to join."""
    model = DDP(weight())
    with model.join():
        for _ in range(1 + rank):
            loss = model(number(rank)).sum()
            loss.backward()
            with torch.no_grad():
                model.module.weight += 10 * (rank + 1)
    return model.module.weight.item()


def momentum(rank):
    """The weight after Join, and after one more step on all ranks."""
    model = DDP(weight())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        model(number(rank)).sum().backward()
        optimizer.step()

    with model.join():
        for _ in range(1 + rank):
            step()
    Join([model], enable=False)
    joined = model.module.weight.item()
    step()
    return joined, model.module.weight.item()


def stale():
    """Both weights after one step on rank 0 and three on rank 1, and which rank owns which weight."""
    rank = dist.get_rank()
    model = DDP(Two())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for _ in range(1 + 2 * rank):
            optimizer.zero_grad()
            model(number(rank), ("a", "b")).sum().backward()
            optimizer.step()
    return [p.item() for p in model.parameters()], [optimizer._param_to_rank[p] for p in model.parameters()]


def zero_first(rank):
    gloo.init()
    model = DDP(Two())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)

    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))  # after the set-up, which may take longer

    def train():
        with Join([optimizer, model]):
            for _ in range(1 + 2 * rank):
                optimizer.zero_grad()
                model(number(rank), ("a", "b")).sum().backward()
                optimizer.step()

    return said(train)


def own(rank, facts):
    count = Count()
    with Join([count]):
        facts["seen"] = [count() for _ in range(1 + 2 * rank)]
    facts["events"] = [
        event if event in ("main", ("post", True), ("post", False)) else "work" for event in count.events
    ]
    facts["stays"] = isinstance(Join.notify_join_context(count), dist.Work)
    Join([count], enable=False)
    facts["reset"] = Join.notify_join_context(count)
    first, second = Count("first"), Count("second")
    ORDER.clear()
    with Join([first, second], some="option"):
        for _ in range(1 + rank):
            first(), second()
    facts["handles"] = (isinstance(first.events[0], dist.Work), second.events[0])
    facts["order"] = list(ORDER)
    facts["kwargs"] = (first.kwargs, second.kwargs)
    off = Count()
    with Join([off], enable=False):
        off()
    facts["off"] = off.events
    late = Count()

    def train():
        with Join([late], throw_on_early_termination=True):
            for _ in range(1 + rank):
                late()

    facts["thrown"] = said(train)
    facts["reduces"] = [reductions(False), reductions(True)]
    other = Count(group=dist.new_group())
    facts["two_groups"] = said(Join, [Count(), other])
    facts["none"] = said(Join, [])
    facts["unprepared"] = said(Count(prepared=False))
    broken = Count()

    def fail():
        with Join([broken]):
            raise KeyError("mine")

    facts["raised"] = (said(fail), broken.events)
    facts["skew"] = skew(rank)
    facts["outside"] = Join.notify_join_context(Count())


def reductions(throw):
    """How many all-reduces one notify_join_context makes."""
    module = importlib.import_module("torch.distributed.algorithms.join")
    real, calls = module.dist.all_reduce, []
    count = Count()
    with Join([count], throw_on_early_termination=throw):
        module.dist.all_reduce = lambda *args, **kwargs: (calls.append(1), real(*args, **kwargs))[1]
        Join.notify_join_context(count)
        module.dist.all_reduce = real
        dist.all_reduce(torch.ones(1))
    return len(calls)


def skew(rank):
    count = Count()
    with warnings.catch_warnings(record=True) as caught, Join([count]):
        for _ in range(1002 * rank):
            count()
    return [str(item.message) for item in caught if "uneven input skew" in str(item.message)]


@pytest.fixture(scope="module")
def joined():
    return gloo.run(2, join)


def test_join_lets_uneven_ranks_finish(joined):
    first, second = of(joined, "weights")
    assert first == second


def test_join_ddp_divides_by_the_initial_world_size(joined):
    assert joined[1]["divided"][0] == [1.5, 1.0]  # 2 and nothing, over two ranks


def test_join_ddp_can_divide_by_the_ranks_left(joined):
    assert joined[1]["divided"][1] == [1.5, 2.0]


def test_join_ddp_ends_with_the_last_joiners_model(joined):
    assert of(joined, "plain_ddp") == [41.0, 41.0]


def test_join_stays_on_after_its_block(joined):
    assert of(joined, "stays") == [True, True] and of(joined, "reset") == [None, None]


def test_join_leaves_the_optimizer_behind(joined):
    (first, early), (second, late) = of(joined, "momentum")
    # Gradients: 1.5 on both, then rank 1's own 2 halved. Right after the epoch, different after one more step.
    assert first == second == pytest.approx(1 - 0.1 * 1.5 - 0.1 * (0.9 * 1.5 + 1))
    assert late == pytest.approx(second - 0.1 * (0.9 * (0.9 * 1.5 + 1) + 1.5))
    assert early == pytest.approx(first - 0.1 * (0.9 * 1.5 + 1.5))


def test_join_of_ddp_and_zero_steps_with_old_gradients(joined):
    for weights, owners in of(joined, "stale"):
        assert owners == [0, 1]
        # The mean gradient of both weights is 1.5, then twice 1. Rank 0 has run out, and goes on with 1.5.
        assert weights == [pytest.approx(1 - 0.1 * 3 * 1.5), pytest.approx(1 - 0.1 * (1.5 + 1 + 1))]


def test_join_of_zero_before_ddp_hangs():
    texts = gloo.run(2, zero_first)
    assert all_say(texts, "RuntimeError")
    assert any("Timed out waiting 2000ms" in text for text in texts)  # who gives up first closes the other's connection


def test_ddp_join_is_join(joined):
    assert of(joined, "ddp_join") == [True, True]
    assert list(inspect.signature(DDP.join).parameters)[1:] == [
        "divide_by_initial_world_size",
        "enable",
        "throw_on_early_termination",
    ]


def test_join_hooks_shadow_and_end(joined):
    assert of(joined, "events") == [["work", "main", "main", ("post", False)], ["work", "work", "work", ("post", True)]]
    assert joined[1]["seen"] == [2.0, 1.0, 1.0]  # the joined rank adds zeros


def test_join_first_joinable_notifies(joined):
    assert of(joined, "handles") == [(True, None)] * 2


def test_join_runs_hooks_in_order(joined):
    assert joined[0]["order"] == ["first", "second"]


def test_join_forwards_keyword_arguments(joined):
    assert of(joined, "kwargs") == [({"some": "option"}, {"some": "option"})] * 2


def test_join_disabled_does_nothing(joined):
    assert of(joined, "off") == [[None]] * 2  # no work, no hook, no post-hook


def test_join_defaults():
    given = inspect.signature(Join).parameters
    assert given["enable"].default is True and given["throw_on_early_termination"].default is False


def test_join_throws_on_every_rank(joined):
    first, second = of(joined, "thrown")
    assert first == "RuntimeError: Rank 0 exhausted all inputs."
    assert second == "RuntimeError: Detected at least one rank that exhausted inputs. Throwing across all ranks."


def test_join_throwing_costs_a_second_all_reduce(joined):
    assert of(joined, "reduces") == [[1, 2]] * 2


def test_join_wants_one_process_group(joined):
    assert all_say(of(joined, "two_groups"), "ValueError", "multiple process groups")


def test_join_wants_a_joinable(joined):
    assert all_say(of(joined, "none"), "ValueError", "at least one joinable")


def test_joinable_must_be_initialised(joined):
    assert all_say(of(joined, "unprepared"), "AssertionError", "constructor calls the ``Joinable`` constructor")


def test_joinable_has_three_members():
    assert Joinable.__abstractmethods__ == {"__init__", "join_hook", "join_device", "join_process_group"}


def test_join_lets_exceptions_through(joined):
    assert of(joined, "raised") == [("KeyError: 'mine'", [])] * 2


def test_join_warns_of_skew(joined):
    assert joined[0]["skew"] and not joined[1]["skew"]


def test_notify_outside_join_does_nothing(joined):
    assert of(joined, "outside") == [None, None]


def test_ddp_and_zero_are_joinable():
    assert issubclass(DDP, Joinable) and issubclass(ZeroRedundancyOptimizer, Joinable)


def test_fsdp_is_not_joinable(joined):
    assert not issubclass(FullyShardedDataParallel, Joinable) and not issubclass(FSDPModule, Joinable)
    assert all_say(of(joined, "fsdp"), "AttributeError", "join_hook")


def test_ranks_agree_on_the_number_of_steps(joined):
    assert of(joined, "agreed") == [[3, 4]] * 2


def test_fsdp_dummy_batches_add_zeros(joined):
    assert of(joined, "dummy") == [[2.0, 2.0]] * 2  # the mean of 4 and nothing


def test_join_example_does_not_import():
    for name in ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.optim.ZeroRedundancyOptimizer"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
