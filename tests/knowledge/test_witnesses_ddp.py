"""Claims about DDP, ZeroRedundancyOptimizer, Join and RPC, run on PyTorch 2.13 by two real processes over Gloo."""

import importlib
import inspect
import warnings

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
from torch.utils.checkpoint import checkpoint  # noqa: E402


def said(call, *args, **kwargs):
    """How a call failed: "ValueError: its message", or "" when it did not."""
    try:
        call(*args, **kwargs)
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def warned(call, *args, **kwargs):
    """The warnings of a call: "FutureWarning: message"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [f"{item.category.__name__}: {item.message}" for item in caught]


def all_say(texts, *words):
    return all(word in text for text in texts for word in words) and bool(texts)


def of(ranks, name):
    return [rank[name] for rank in ranks]


def weight(value=1.0):
    """One weight, no bias: the gradient of its output's sum is its input."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, value)
    return layer


def number(rank):
    return torch.tensor([[rank + 1.0]])


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return next(model.parameters()).grad.item()


class Buffered(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.layer = weight()
        self.register_buffer("count", torch.tensor([float(rank)]))

    def forward(self, x):
        return self.layer(x)


class Two(nn.Module):
    """Two weights, of which a forward may use one."""

    def __init__(self):
        super().__init__()
        self.a, self.b = weight(), weight()

    def forward(self, x, use=("a",)):
        return sum(getattr(self, name)(x) for name in use)


class Checkpointed(nn.Module):
    """One layer, recomputed ``times`` times with reentrant checkpointing, and perhaps another that is used or not."""

    def __init__(self, times, other=""):
        super().__init__()
        self.layer = weight()
        if other:
            self.other = weight()
        self.times, self.used = times, other == "used"

    def forward(self, x):
        x = self.other(x) if self.used else x
        for _ in range(self.times):
            x = checkpoint(self.layer, x, use_reentrant=True)
        return x


# ------------------------------------------------------------------------------------------------------------- DDP


def replicas(rank):
    facts = {"uninitialised": said(DDP, weight())}
    gloo.init()
    x = number(rank)
    model = DDP(weight(rank + 1.0))
    facts["start"] = model.module.weight.item()
    facts["unsynchronised_start"] = DDP(weight(rank + 1.0), init_sync=False).module.weight.item()
    facts["mean"] = gradient(model, model(x).sum())
    facts["keys"] = list(model.state_dict())
    facts["caps"] = (model.bucket_bytes_cap, dist._DEFAULT_FIRST_BUCKET_BYTES)
    model.zero_grad()
    with model.no_sync():
        model(x).sum().backward()
    facts["no_sync"] = model.module.weight.grad.item()
    model(x).sum().backward()
    facts["after_no_sync"] = model.module.weight.grad.item()
    model.zero_grad()
    output = model(x)
    with model.no_sync():
        output.sum().backward()
    facts["no_sync_backward_only"] = model.module.weight.grad.item()
    model = DDP(weight())
    facts["autograd_grad"] = torch.autograd.grad(model(x).sum(), [model.module.weight])[0].item()
    buffers(rank, facts, x)
    refusals(rank, facts)
    views(facts, x)
    unused(facts, x)
    static(facts, x)
    hooks(rank, facts, x)
    zero(rank, facts, x)
    return facts


def buffers(rank, facts, x):
    def kept(**options):
        model = DDP(Buffered(rank), **options)
        start = model.module.count.item()
        model.module.count.fill_(rank + 5.0)
        model(x)
        return start, model.module.count.item()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        facts["buffers"] = (kept(), kept(broadcast_buffers=False), kept(forward_sync_buffers=False))
    facts["broadcast_buffers"] = warned(DDP, Buffered(rank), broadcast_buffers=False)
    facts["plain"] = warned(DDP, Buffered(rank))


def refusals(rank, facts):
    frozen = weight().requires_grad_(False)
    mesh, square = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    mixed = nn.Sequential(weight(), nn.Linear(1, 1, device="meta"))
    facts["refused"] = {
        "other model": said(DDP, nn.Linear(1, 1, bias=bool(rank))),
        "device_ids": said(DDP, weight(), device_ids=[0]),
        "two devices": said(DDP, weight(), device_ids=[0, 1]),
        "frozen": said(DDP, frozen),
        "mixed": said(DDP, mixed),
        "lazy": said(DDP, nn.LazyLinear(1)),
        "group and mesh": said(DDP, weight(), process_group=dist.group.WORLD, device_mesh=mesh),
        "2-D mesh": said(DDP, weight(), device_mesh=square),
        "sync batch norm": said(DDP, nn.SyncBatchNorm(4)),
        "delay": said(DDP, weight(), param_to_hook_all_reduce=weight().weight),
        "sample rate": said(DDP(weight())._set_ddp_runtime_logging_sample_rate, 0),
    }


def views(facts, x):
    plain, view = DDP(weight()), DDP(weight(), gradient_as_bucket_view=True)
    for model in (plain, view):
        for _ in range(2):
            gradient(model, model(x).sum())
    facts["detach"] = (said(plain.module.weight.grad.detach_), said(view.module.weight.grad.detach_))


def unused(facts, x):
    def twice(model, debug=dist.DebugLevel.OFF):
        dist.set_debug_level(debug)
        model(x).sum().backward()
        text = said(model, x)
        dist.set_debug_level(dist.DebugLevel.OFF)
        return text

    facts["unused"] = twice(DDP(Two()))
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    named = DDP(Two())
    facts["unused_named"] = twice(named, dist.DebugLevel.DETAIL)
    found = DDP(Two(), find_unused_parameters=True)
    facts["found"] = (twice(found), found.module.b.weight.grad)
    either = DDP(Two(), find_unused_parameters=True)
    either(x, ("a",) if dist.get_rank() else ("b",)).sum().backward()
    facts["either"] = (either.module.a.weight.grad.item(), either.module.b.weight.grad.item())


def static(facts, x):
    def run(model, steps=3):
        for _ in range(steps):
            model(x.clone().requires_grad_()).sum().backward()

    def outside(model):
        for _ in range(3):
            (model(x) * model.module.b.weight).sum().backward()

    facts["checkpointed"] = {
        "once": said(run, DDP(Checkpointed(1))),
        "twice": said(run, DDP(Checkpointed(2, "used"))),
        "twice, static": said(run, DDP(Checkpointed(2, "used"), static_graph=True)),
        "unused": said(run, DDP(Checkpointed(1, "unused"), find_unused_parameters=True)),
        "unused, static": said(run, DDP(Checkpointed(1, "unused"), static_graph=True)),
    }
    alone, fixed = DDP(Checkpointed(2)), DDP(Checkpointed(2), static_graph=True)
    facts["silent"] = [gradient(model, model(x.clone().requires_grad_()).sum()) for model in (alone, fixed)]
    facts["outside"] = (
        said(outside, DDP(Two(), find_unused_parameters=True)),
        said(outside, DDP(Two(), static_graph=True)),
    )
    facts["static_unused"] = said(run, DDP(Two(), static_graph=True))
    changing = DDP(Two(), static_graph=True)
    changing(x).sum().backward()
    facts["changed"] = said(lambda: (changing(x, ("b",)).sum().backward(), changing(x, ("b",)).sum().backward()))
    facts["both"] = warned(DDP, Two(), static_graph=True, find_unused_parameters=True)
    for name, options in (("logged", {}), ("logged_static", {"static_graph": True})):
        model = DDP(weight(), **options)
        run(model, 12)
        facts[name] = sorted(model._get_ddp_logging_data())


def hooks(rank, facts, x):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def nothing(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def summed(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    def with_hook(hook, value=x):
        model = DDP(weight())
        model.register_comm_hook(None, hook)
        return gradient(model, model(value).sum())

    facts["hooked"] = [with_hook(hook) for hook in (nothing, summed, default_hooks.allreduce_hook)]
    third = torch.full((1, 1), 1 / 3)
    model = DDP(weight())
    facts["fp16"] = (with_hook(default_hooks.fp16_compress_hook, third), gradient(model, model(third).sum()))
    facts["bf16"] = said(with_hook, default_hooks.bf16_compress_hook)
    model.register_comm_hook(None, nothing)
    facts["hook_twice"] = said(model.register_comm_hook, None, nothing)
    facts["power_sgd"] = said(powerSGD_hook.PowerSGDState, None, start_powerSGD_iter=1)

    def annotated(state, bucket: int):
        return nothing(state, bucket)

    facts["annotation"] = said(with_hook, annotated)
    facts["no_callable"] = said(with_hook, 3)


def zero(rank, facts, x):
    model = DDP(nn.Sequential(weight(), weight()))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    facts["zero_states"] = len(optimizer.optim.state)
    facts["zero_weights"] = [p.item() for p in model.parameters()]
    facts["zero_unconsolidated"] = said(optimizer.state_dict)
    optimizer.consolidate_state_dict(to=0)
    facts["zero_consolidated"] = len(optimizer.state_dict()["state"]) if rank == 0 else said(optimizer.state_dict)
    different = [weight().weight, nn.Parameter(torch.ones(1, dtype=torch.float64))]
    facts["zero_dtypes"] = said(ZeroRedundancyOptimizer, different, torch.optim.Adam)
    overlapped = ZeroRedundancyOptimizer([weight().weight], torch.optim.Adam, overlap_with_ddp=True)
    facts["zero_overlap_groups"] = said(overlapped.add_param_group, {"params": [weight().weight]})
    bucketed = [weight().weight for _ in range(4)]
    ZeroRedundancyOptimizer(bucketed, torch.optim.Adam, parameters_as_bucket_view=True)
    facts["zero_buckets"] = len({p.untyped_storage().data_ptr() for p in bucketed})


@pytest.fixture(scope="module")
def two():
    return gloo.run(2, replicas)


def test_ddp_needs_a_process_group(two):
    assert all_say(of(two, "uninitialised"), "ValueError", "has not been initialized")


def test_ddp_starts_from_rank_0(two):
    assert of(two, "start") == [1.0, 1.0]


def test_ddp_without_init_sync(two):
    assert of(two, "unsynchronised_start") == [1.0, 2.0]


def test_ddp_averages_gradients(two):
    assert of(two, "mean") == [1.5, 1.5]  # the inputs are 1 and 2


def test_ddp_state_dict_has_a_prefix(two):
    assert of(two, "keys") == [["module.weight"]] * 2


def test_ddp_bucket_sizes(two):
    assert of(two, "caps") == [(25 * 1024**2, 1024**2)] * 2


def test_ddp_no_sync(two):
    assert of(two, "no_sync") == [1.0, 2.0]  # each rank's own
    assert of(two, "after_no_sync") == [3.0, 3.0]  # the mean of 1 + 1 and 2 + 2


def test_ddp_no_sync_needs_the_forward(two):
    assert of(two, "no_sync_backward_only") == [1.5, 1.5]


def test_ddp_does_not_work_with_autograd_grad(two):
    assert of(two, "autograd_grad") == [1.0, 2.0]


def test_ddp_broadcasts_buffers(two):
    assert [synced for synced, _, _ in of(two, "buffers")] == [(0.0, 5.0), (0.0, 5.0)]


def test_ddp_broadcast_buffers_false_skips_the_start_too(two):
    assert [never for _, never, _ in of(two, "buffers")] == [(0.0, 5.0), (1.0, 6.0)]
    assert all_say([texts[0] for texts in of(two, "broadcast_buffers")], "FutureWarning", "forward_sync_buffers")


def test_ddp_forward_sync_buffers_false_keeps_the_start(two):
    assert [start_only for _, _, start_only in of(two, "buffers")] == [(0.0, 5.0), (0.0, 6.0)]
    assert of(two, "plain") == [[], []]


def refused(two, name, *words):
    return all_say([facts[name] for facts in of(two, "refused")], *words)


def test_ddp_needs_the_same_parameters(two):
    assert refused(two, "other model", "RuntimeError", "same model across all ranks")


def test_ddp_on_cpu_takes_no_device_ids(two):
    assert refused(two, "device_ids", "ValueError", "only work with single-device/multiple-device GPU modules")


def test_ddp_takes_one_device_id(two):
    assert refused(two, "two devices", "ValueError", "single element")


def test_ddp_needs_a_trainable_parameter(two):
    assert refused(two, "frozen", "RuntimeError", "requires a gradient")


def test_ddp_needs_one_device_type(two):
    assert refused(two, "mixed", "ValueError", "same type of devices")


def test_ddp_needs_initialised_parameters(two):
    assert refused(two, "lazy", "RuntimeError", "uninitialized parameters")


def test_ddp_group_or_mesh(two):
    assert refused(two, "group and mesh", "RuntimeError", "Cannot specify both")


def test_ddp_mesh_is_one_dimensional(two):
    assert refused(two, "2-D mesh", "RuntimeError", "Only 1D device mesh")


def test_ddp_sync_batch_norm_needs_gpus(two):
    assert refused(two, "sync batch norm", "ValueError", "SyncBatchNorm")


def test_ddp_delayed_all_reduce_needs_both_arguments(two):
    assert refused(two, "delay", "ValueError", "need to be set at the same time")


def test_ddp_gradient_views_cannot_be_detached(two):
    for plain, view in of(two, "detach"):
        assert plain == "" and "RuntimeError" in view


def test_ddp_unused_parameters_raise_in_the_next_forward(two):
    assert all_say(of(two, "unused"), "RuntimeError", "Expected to have finished reduction in the prior iteration")


def test_ddp_debug_names_the_unused_parameters(two):
    assert all_say(of(two, "unused_named"), "b.weight") and not any("b.weight" in text for text in of(two, "unused"))


def test_ddp_find_unused_parameters(two):
    assert of(two, "found") == [("", None)] * 2  # unused everywhere: no gradient


def test_ddp_unused_on_one_rank_counts_as_zero(two):
    assert of(two, "either") == [(1.0, 0.5)] * 2  # rank 1 gave 2 to a, rank 0 gave 1 to b; half of each


def test_ddp_reentrant_checkpoint_once(two):
    assert [facts["once"] for facts in of(two, "checkpointed")] == [""] * 2


def test_ddp_static_graph_allows_checkpointing_twice(two):
    for facts in of(two, "checkpointed"):
        assert "Expected to mark a variable ready only once" in facts["twice"] and facts["twice, static"] == ""


def test_ddp_checkpointing_twice_can_be_silently_wrong(two):
    alone, fixed = zip(*of(two, "silent"), strict=True)
    assert fixed == (3.0, 3.0)  # 2 * the mean of the inputs 1 and 2
    assert alone[0] != alone[1]


def test_ddp_static_graph_allows_checkpointing_with_unused(two):
    for facts in of(two, "checkpointed"):
        assert "RuntimeError" in facts["unused"] and facts["unused, static"] == ""


def test_ddp_static_graph_allows_parameters_outside_forward(two):
    for plain, fixed in of(two, "outside"):
        assert "RuntimeError" in plain and fixed == ""


def test_ddp_static_graph_finds_unused_itself(two):
    assert of(two, "static_unused") == ["", ""]
    assert all(any("find_unused_parameters=true" in text for text in texts) for texts in of(two, "both"))


def test_ddp_static_graph_must_not_change(two):
    assert all_say(of(two, "changed"), "RuntimeError", "graph")


def test_ddp_logging_never_says_can_set_static_graph(two):
    for keys in of(two, "logged") + of(two, "logged_static"):
        assert "world_size" in keys and "can_set_static_graph" not in keys


def test_ddp_hook_replaces_the_all_reduce(two):
    assert [hooked[0] for hooked in of(two, "hooked")] == [1.0, 2.0]


def test_ddp_hook_divides_itself(two):
    assert [hooked[1] for hooked in of(two, "hooked")] == [3.0, 3.0]


def test_ddp_allreduce_hook_is_the_default(two):
    assert [hooked[2] for hooked in of(two, "hooked")] == of(two, "mean")


def test_ddp_fp16_hook_rounds(two):
    for rounded, exact in of(two, "fp16"):
        assert rounded != exact and abs(rounded - exact) < 1e-3


def test_ddp_bf16_hook_needs_a_gpu(two):
    assert all_say(of(two, "bf16"), "TypeError", "BF16 all reduce communication hook required")


def test_ddp_one_hook(two):
    assert all_say(of(two, "hook_twice"), "RuntimeError", "once")


def test_ddp_hook_annotation(two):
    assert all_say(of(two, "annotation"), "ValueError", "bucket annotation should be dist.GradBucket")


def test_power_sgd_starts_at_two(two):
    assert all_say(of(two, "power_sgd"), "ValueError", "start_powerSGD_iter")


def test_zero_shards_states_by_parameter(two):
    assert of(two, "zero_states") == [1, 1]  # two parameters, one on each rank


def test_zero_broadcasts_parameters(two):
    first, second = of(two, "zero_weights")
    assert first == second and 1.0 not in first


def test_zero_consolidates_before_state_dict(two):
    assert all_say(of(two, "zero_unconsolidated"), "RuntimeError", "has not been consolidated on this rank")
    assert two[0]["zero_consolidated"] == 2 and "RuntimeError" in two[1]["zero_consolidated"]


def test_zero_wants_one_dense_type(two):
    assert all_say(of(two, "zero_dtypes"), "ValueError")


def test_zero_overlap_takes_one_group(two):
    assert all_say(of(two, "zero_overlap_groups"), "RuntimeError", "single parameter group")


def test_zero_bucket_views(two):
    assert of(two, "zero_buckets") == [2, 2]  # four parameters in one bucket for each rank


# ------------------------------------------------------------------------------------------------------------ Join


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
    """The weight after Join, and what the rank's optimizer has kept."""
    model = DDP(weight())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with model.join():
        for _ in range(1 + rank):
            optimizer.zero_grad()
            model(number(rank)).sum().backward()
            optimizer.step()
    (state,) = optimizer.state.values()
    return model.module.weight.item(), state["momentum_buffer"].item()


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
    assert first == second and early != late


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


# ------------------------------------------------------------------------------------------------------------- RPC


def remote(rank):
    import torch.distributed.autograd as dist_autograd
    from torch.distributed import rpc
    from torch.distributed.optim import DistributedOptimizer

    gloo.init()
    facts = {"timeout": rpc.constants.DEFAULT_RPC_TIMEOUT_SEC}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
        facts["again"] = said(rpc.init_rpc, f"again{rank}", rank=rank, world_size=2)
        model = DDP(weight())
        optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(p) for p in model.parameters()], lr=0.1)
        with dist_autograd.context() as context:
            dist_autograd.backward(context, [model(number(rank)).sum()])
            facts["grad"] = model.module.weight.grad
            (gradient,) = dist_autograd.get_gradients(context).values()
            facts["context_grad"] = gradient.item()
            optimizer.step(context)
        facts["weight"] = model.module.weight.item()
        rpc.shutdown()
    facts["warnings"] = [str(item.message) for item in caught if "rpc" in str(item.message).lower()]
    return facts


@pytest.fixture(scope="module")
def called():
    return gloo.run(2, remote)


def test_rpc_gradients_are_in_the_context(called):
    assert of(called, "grad") == [None, None] and of(called, "context_grad") == [1.5, 1.5]


def test_rpc_distributed_optimizer_steps(called):
    assert of(called, "weight") == pytest.approx([0.85, 0.85])


def test_rpc_is_initialised_once(called):
    assert all_say(of(called, "again"), "RuntimeError")


def test_rpc_timeout(called):
    assert of(called, "timeout") == [60.0, 60.0]


def test_rpc_warns_of_nothing(called):
    assert of(called, "warnings") == [[], []]
