"""Claims about DDP's static graph and communication hooks and about ZeroRedundancyOptimizer, run on PyTorch 2.13 by two processes."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from witness_answers import Two, all_say, gradient, number, of, said, warned, weight  # noqa: E402


class Checkpointed(nn.Module):
    """One layer, recomputed ``times`` times with reentrant checkpointing, and perhaps another before, after or unused."""

    def __init__(self, times, other=""):
        super().__init__()
        self.layer = weight()
        if other:
            self.other = weight()
        self.times, self.place = times, other

    def forward(self, x):
        x = self.other(x) if self.place == "before" else x
        for _ in range(self.times):
            x = checkpoint(self.layer, x, use_reentrant=True)
        return self.other(x) if self.place == "after" else x


def replicas(rank):
    gloo.init()
    facts, x = {}, number(rank)
    static(facts, x)
    hooks(rank, facts, x)
    zero(rank, facts, x)
    return facts


def static(facts, x):
    def run(model, steps=3):
        for _ in range(steps):
            model(x.clone().requires_grad_()).sum().backward()

    def outside(model):
        for _ in range(3):
            (model(x) * model.module.b.weight).sum().backward()

    facts["checkpointed"] = {
        "once": said(run, DDP(Checkpointed(1))),
        "twice": said(run, DDP(Checkpointed(2, "before"))),
        "twice, static": said(run, DDP(Checkpointed(2, "before"), static_graph=True)),
        "unused": said(run, DDP(Checkpointed(1, "unused"), find_unused_parameters=True)),
        "unused, static": said(run, DDP(Checkpointed(1, "unused"), static_graph=True)),
    }
    first, fixed = DDP(Checkpointed(2, "after")), DDP(Checkpointed(2, "after"), static_graph=True)
    facts["silent"] = [gradient(model, model(x.clone().requires_grad_()).sum()) for model in (first, fixed)]
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


def test_ddp_reentrant_checkpoint_once(two):
    assert [facts["once"] for facts in of(two, "checkpointed")] == [""] * 2


def test_ddp_static_graph_allows_checkpointing_twice(two):
    for facts in of(two, "checkpointed"):
        assert "Expected to mark a variable ready only once" in facts["twice"] and facts["twice, static"] == ""


def test_ddp_checkpointing_twice_can_be_silently_wrong(two):
    plain, fixed = zip(*of(two, "silent"), strict=True)
    assert fixed == (3.0, 3.0)  # 2 * the mean of the inputs 1 and 2
    assert plain == (2.5, 3.5)  # the mean, and each rank's own second gradient


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
    assert [hooked[2] for hooked in of(two, "hooked")] == [1.5, 1.5]


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
