"""Claims about DistributedDataParallel, run on PyTorch 2.13 by two processes over Gloo."""

import warnings

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402
from witness_answers import Two, all_say, gradient, number, of, said, warned, weight  # noqa: E402


class Buffered(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.layer = weight()
        self.register_buffer("count", torch.tensor([float(rank)]))

    def forward(self, x):
        return self.layer(x)


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
