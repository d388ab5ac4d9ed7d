"""Groups and transients: a real training step of a small model, with the real buffers weighed while they are alive."""

from __future__ import annotations

import importlib
import inspect
import weakref
from typing import Any

import pytest

from shardguide.accounting import SOURCES, Group, Layout, Request, groups, per_rank, split_ties, transients
from shardguide.accounting.group import mixed_dtypes

from . import small
from .oracle import describe, dp_mesh, fake_world, local, param_groups, shard

pytestmark = pytest.mark.torch

UNTIED = [(("embed",), "embedding"), *small.UNITS, (("norm", "head"), "head")]
POLICIES = [("", ""), ("bfloat16", "float32"), ("bfloat16", ""), ("bfloat16", "bfloat16"), ("", "bfloat16")]
LAYOUTS = [(Layout(1, 1), 0), (Layout(1, 4), 3), (Layout(1, 13), 2), (Layout(2, 4), 7), (Layout(3, 1), 1)]


class Scales:
    """Weighs the collectives' buffers of a step; every number is of tensors that PyTorch itself allocated."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch
        from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group as group_module

        self.module, self.groups = module, param_groups(module)
        self.alive: list[Any] = []
        self.gathered: dict[int, int] = {}
        self.scattered: dict[int, tuple[int, int]] = {}
        self.all_gather_peak = {"forward": 0, "backward": 0}
        self.scatter_peak = 0
        self.copy_in = self.dim_copies = self.gradients = self.retained = 0
        self.phase = "forward"
        scales = self

        class AllGather(collectives.DefaultAllGather):
            def __init__(self, number: int) -> None:
                self.number = number

            def allocate(self, size: Any, *, dtype: Any, device: Any) -> Any:
                tensor = super().allocate(size, dtype=dtype, device=device)
                scales.gathered[self.number] = tensor.untyped_storage().nbytes()
                scales.alive.append(("gather", weakref.ref(tensor), scales.gathered[self.number]))
                total = scales.weigh("gather")
                scales.all_gather_peak[scales.phase] = max(total, scales.all_gather_peak[scales.phase])
                return tensor

        class ReduceScatter(collectives.DefaultReduceScatter):
            def __init__(self, number: int) -> None:
                self.number, self.buffers = number, []

            def allocate(self, size: Any, *, dtype: Any, device: Any) -> Any:
                tensor = super().allocate(size, dtype=dtype, device=device)
                nbytes = tensor.untyped_storage().nbytes()
                first = self.number not in scales.scattered  # the input; the output comes second
                if first:
                    scales.scattered[self.number] = (nbytes, 0)
                    scales.alive.append(("scatter", weakref.ref(tensor), nbytes))
                    scales.scatter_peak = max(scales.scatter_peak, scales.weigh("scatter"))
                else:
                    scales.scattered[self.number] = (scales.scattered[self.number][0], nbytes)
                return tensor

        for number, group in enumerate(self.groups):
            group._all_gather_comm = AllGather(number)
            group._reduce_scatter_comm = ReduceScatter(number)

        plain_inputs = collectives._get_param_all_gather_inputs

        def inputs(fsdp_params: Any) -> Any:
            found = plain_inputs(fsdp_params)
            own = {p._sharded_param_data.untyped_storage().data_ptr() for p in fsdp_params}
            storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for ts in found for t in ts}
            scales.copy_in = max(scales.copy_in, sum(n for at, n in storages.items() if at not in own))
            return found

        monkeypatch.setattr(collectives, "_get_param_all_gather_inputs", inputs)
        plain_copy_out, plain_like = group_module.foreach_all_gather_copy_out, torch.empty_like

        def copy_out(*arguments: Any) -> None:
            total = 0

            def like(tensor: Any, **rest: Any) -> Any:
                nonlocal total
                total += tensor.nbytes
                return plain_like(tensor, **rest)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch, "empty_like", like)
                plain_copy_out(*arguments)
            scales.dim_copies = max(scales.dim_copies, total)

        monkeypatch.setattr(group_module, "foreach_all_gather_copy_out", copy_out)
        plain_reduce = group_module.foreach_reduce

        def reduce(fsdp_params: Any, grads: Any, *rest: Any) -> Any:
            scales.gradients = max(scales.gradients, sum(g.numel() * g.itemsize for g in grads))
            return plain_reduce(fsdp_params, grads, *rest)

        monkeypatch.setattr(group_module, "foreach_reduce", reduce)
        plain_finalize = group_module.FSDPParamGroup.finalize_backward

        def finalize(group: Any) -> None:
            if not scales.retained:
                scales.retained = scales.weigh_retained()
            plain_finalize(group)

        monkeypatch.setattr(group_module.FSDPParamGroup, "finalize_backward", finalize)

    def weigh(self, kind: str) -> int:
        return sum(nbytes for what, tensor, nbytes in self.alive if what == kind and tensor() is not None)

    def weigh_retained(self) -> int:
        """All-reduce buffers still referenced, apart from those that are gradients."""
        own = {local(p.grad).untyped_storage().data_ptr() for p in self.module.parameters() if p.grad is not None}
        total = 0
        for group in self.groups:
            if group._all_reduce_state is not None:
                storage = group._all_reduce_state.all_reduce_input.untyped_storage()
                total += 0 if storage.data_ptr() in own else storage.nbytes()
        return total

    def unsharded(self) -> list[int]:
        """Bytes of each group's unsharded parameters that are allocated now."""
        return [
            sum(t.untyped_storage().nbytes() for p in group.fsdp_params for t in p.all_gather_outputs)
            for group in self.groups
        ]

    def resharded(self) -> int:
        return sum(
            p._sharded_post_forward_param_data.untyped_storage().nbytes()
            for group in self.groups
            for p in group.fsdp_params
            if getattr(p, "_sharded_post_forward_param_data", None) is not None
        )

    def accumulated(self) -> int:
        total = 0
        for group in self.groups:
            for p in group.fsdp_params:
                for gradient in (p.unsharded_accumulated_grad, p._unsharded_param.grad):
                    total += 0 if gradient is None else gradient.untyped_storage().nbytes()
        return total

    def forward(self) -> Any:
        import torch

        return self.module(torch.arange(10).view(2, 5)).float().square().mean()

    def backward(self, loss: Any) -> None:
        self.phase = "backward"
        loss.backward()


def mp(policy: tuple[str, str]) -> Any:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    first, second = (getattr(torch, name) if name else None for name in policy)
    return MixedPrecisionPolicy(param_dtype=first, reduce_dtype=second)


def by_module_order(module: Any, ours: tuple[Group, ...]) -> list[Group]:
    """Our groups in the order in which modules are found: the root first."""
    position = {name: number for number, (name, _) in enumerate(module.named_modules())}
    return sorted(ours, key=lambda group: min(position[m] for m in group.modules) if group.modules else -1)


@pytest.mark.parametrize(("layout", "rank"), LAYOUTS, ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_a_step(
    tied: bool, policy: tuple[str, str], layout: Layout, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, units = small.make(tied), small.UNITS if tied else UNTIED
    module.blocks[1].up.requires_grad_(False)
    model = describe(module, units)
    request = Request(model, layout, mp_param_dtype=policy[0], mp_reduce_dtype=policy[1])
    facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
    ours = by_module_order(module, groups(request))
    with fake_world(layout, rank) as mesh:
        shard(module, units, dp_mesh(mesh, layout), mp_policy=mp(policy))
        scales = Scales(module, monkeypatch)
        loss = scales.forward()
        after_forward = scales.unsharded()
        scales.backward(loss)
        # The groups themselves.
        alone = layout.shard_size == 1
        assert [g.all_gather_bytes for g in ours] == [scales.gathered.get(n, 0) for n in range(len(ours))]
        assert alone or [g.all_gather_bytes for g in ours] == [g.unsharded_bytes for g in ours]
        assert [(g.reduce_scatter_bytes, g.reduce_scatter_output_bytes) for g in ours] == [
            scales.scattered[n] for n in range(len(ours))
        ]
        assert [g.all_reduce_bytes for g in ours] == [
            scales.scattered[n][1] if layout.replicate_size > 1 else 0 for n in range(len(ours))
        ]
        # What is alive, and when.
        if tied:
            assert after_forward == [facts["unsharded_root"], 0, 0, 0]
            assert ours[0].unsharded_bytes == facts["unsharded_root"]
        else:
            assert not any(after_forward)
            assert "unsharded_root" not in facts
        if not alone:
            assert scales.all_gather_peak == {
                "forward": facts["all_gather_outputs"],
                "backward": facts["all_gather_prefetched"],
            }
            assert scales.copy_in == facts["all_gather_copy_in"]
        assert scales.scatter_peak == facts["reduce_scatter_input"]
        assert scales.gradients == facts["unsharded_gradients"]
        largest = max(output for _, output in scales.scattered.values())
        cast = (policy[1] or policy[0] or "float32") != "float32"
        assert facts.get("reduce_scatter_output", 0) == (largest if cast else 0)
        assert scales.retained == facts.get("hsdp_retained", 0)
        assert (facts.get("hsdp_retained", 0) > 0) == (cast and layout.replicate_size > 1)


@pytest.mark.parametrize(
    "policy", [("", ""), ("", "float32"), ("bfloat16", "float32"), ("float32", "bfloat16")], ids=str
)
def test_parameters_kept_in_bfloat16(policy: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    layout, rank = Layout(2, 4), 6
    module = small.make().to(torch.bfloat16)
    request = Request(describe(module, small.UNITS), layout, mp_param_dtype=policy[0], mp_reduce_dtype=policy[1])
    facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
    ours = by_module_order(module, groups(request))
    with fake_world(layout, rank) as mesh:
        shard(module, small.UNITS, dp_mesh(mesh, layout), mp_policy=mp(policy))
        scales = Scales(module, monkeypatch)
        scales.backward(scales.forward())
        assert [g.all_gather_bytes for g in ours] == [scales.gathered[n] for n in range(len(ours))]
        assert [g.reduce_scatter_bytes for g in ours] == [scales.scattered[n][0] for n in range(len(ours))]
        assert scales.copy_in == facts["all_gather_copy_in"]
        assert scales.retained == facts["hsdp_retained"]
        # float32 reduction of bfloat16 gradients holds twice their bytes once more, to the end of backward.
        assert facts["hsdp_retained"] == (2 * per_rank(request)[0].gradient_bytes if policy[1] == "float32" else 0)


@pytest.mark.parametrize(("layout", "rank"), LAYOUTS, ids=str)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_kept_unsharded(policy: tuple[str, str], layout: Layout, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = small.make()
    request = Request(
        describe(module, small.UNITS), layout, "grad_op", mp_param_dtype=policy[0], mp_reduce_dtype=policy[1],
        reshard_after_forward=False,
    )  # fmt: skip
    facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
    with fake_world(layout, rank) as mesh:
        shard(module, small.UNITS, dp_mesh(mesh, layout), mp_policy=mp(policy), reshard_after_forward=False)
        scales = Scales(module, monkeypatch)
        loss = scales.forward()
        assert sum(scales.unsharded()) == facts["unsharded_model"]
        assert max(scales.unsharded()) == facts["unsharded_group"]
        scales.backward(loss)
        assert not any(scales.unsharded())
        assert scales.all_gather_peak["backward"] == facts.get("all_gather_prefetched", 0) == 0
    assert "unsharded_root" not in facts


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("root", [False, True])
def test_resharded_to_an_int(size: int, root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The int given to every call: the root honours it too (2.8 on). A root left at None stays unsharded.
    layout, rank = Layout(1, 8), 5
    module = small.make(tied=root)
    units = small.UNITS if root else UNTIED
    request = Request(describe(module, units), layout, mp_param_dtype="bfloat16", reshard_after_forward=size)
    facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
    with fake_world(layout, rank) as mesh:
        shard(module, units, mesh, mp_policy=mp(("bfloat16", "")), reshard_after_forward=size)
        scales = Scales(module, monkeypatch)
        loss = scales.forward()
        assert scales.resharded() == facts.get("resharded_to_int", 0)
        assert sum(scales.unsharded()) == facts.get("unsharded_model", 0)
        assert (size == 1) == ("unsharded_model" in facts)
        assert (size in (2, 4)) == ("resharded_to_int" in facts)
        scales.backward(loss)
        assert scales.resharded() == 0


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize(("layout", "rank"), LAYOUTS, ids=str)
def test_accumulation(policy: tuple[str, str], layout: Layout, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = small.make()
    module.blocks[1].up.requires_grad_(False)
    request = Request(describe(module, small.UNITS), layout, mp_param_dtype=policy[0], mp_reduce_dtype=policy[1])
    facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
    with fake_world(layout, rank) as mesh:
        shard(module, small.UNITS, dp_mesh(mesh, layout), mp_policy=mp(policy))
        module.set_requires_gradient_sync(False)
        scales = Scales(module, monkeypatch)
        for _ in range(2):
            scales.backward(scales.forward())
            assert scales.accumulated() == facts["accumulated_gradients"]
        module.set_requires_gradient_sync(True)
        if layout.replicate_size > 1:
            module.set_requires_all_reduce(False)
            for _ in range(2):
                scales.backward(scales.forward())
                held = sum(group._partial_reduce_output.untyped_storage().nbytes() for group in scales.groups)
                assert held == facts["hsdp_partial"]
        else:
            assert "hsdp_partial" not in facts
            scales.backward(scales.forward())
        assert module.head.weight.grad is not None or layout.replicate_size > 1


def test_dims_above_zero_are_copied_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.tensor import Shard

    layout, rank = Layout(1, 4), 1
    module = small.make()
    placements = {name: 1 for name, p in module.named_parameters() if name.endswith(("up.weight", "down.weight"))}
    request = Request(describe(module, small.UNITS), layout, mp_param_dtype="bfloat16", placements=placements)
    facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
    dims = {id(p): placements.get(name) for name, p in module.named_parameters()}
    with fake_world(layout, rank) as mesh:
        shard(
            module, small.UNITS, mesh, mp_policy=mp(("bfloat16", "")),
            shard_placement_fn=lambda p: None if dims[id(p)] is None else Shard(dims[id(p)]),
        )  # fmt: skip
        scales = Scales(module, monkeypatch)
        scales.backward(scales.forward())
        assert scales.dim_copies == facts["shard_dim_copies"] == 2 * 2 * small.WIDTH * small.INNER
        assert scales.scatter_peak == facts["reduce_scatter_input"]


def test_offload_copies_to_the_device_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy

    layout, rank = Layout(1, 4), 1
    plain_to = torch.Tensor.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args == (torch.device("cpu"),) and kwargs.get("non_blocking"):
            kwargs["copy"] = True  # as to an accelerator
        return plain_to(self, *args, **kwargs)

    for policy in (("", ""), ("bfloat16", "float32")):
        module = small.make()
        request = Request(
            describe(module, small.UNITS), layout, mp_param_dtype=policy[0], mp_reduce_dtype=policy[1], offload=True
        )
        facts = {fact.id.removeprefix("transient."): fact.value for fact in transients(request)}
        with fake_world(layout, rank) as mesh, monkeypatch.context() as patch:
            offload = CPUOffloadPolicy(pin_memory=False)
            shard(module, small.UNITS, mesh, mp_policy=mp(policy), offload_policy=offload)
            patch.setattr(torch.Tensor, "to", to)
            scales = Scales(module, patch)
            scales.backward(scales.forward())
            assert scales.copy_in == facts["all_gather_copy_in"] > 0


def test_ddp_buckets() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    module = small.make()
    module.blocks[1].up.requires_grad_(False)
    (fact,) = transients(Request(describe(module, small.UNITS), Layout(1, 1), "none"))
    assert fact.id == "transient.ddp_buckets"
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        for as_view in (False, True):
            wrapped = DistributedDataParallel(module, gradient_as_bucket_view=as_view)
            buckets: dict[int, int] = {}

            def hook(state, bucket, buckets=buckets):  # without annotations: DDP checks them
                storage = bucket.buffer().untyped_storage()
                buckets[storage.data_ptr()] = storage.nbytes()
                future = torch.futures.Future()
                future.set_result(bucket.buffer())
                return future

            wrapped.register_comm_hook(None, hook)
            for _ in range(3):  # gradients become views after the first iteration
                wrapped.zero_grad()
                buckets.clear()
                small.step(wrapped)
            own = {p.grad.untyped_storage().data_ptr() for p in module.parameters() if p.grad is not None}
            extra = sum(nbytes for at, nbytes in buckets.items() if at not in own)
            assert extra == (0 if as_view else fact.value)
            assert sum(buckets.values()) == fact.value
            module.zero_grad()
            del wrapped
    finally:
        dist.destroy_process_group()


def test_tied_weights_in_two_groups() -> None:
    module = small.make()
    apart = [(("embed",), "embedding"), *small.UNITS]
    assert split_ties(describe(module, apart)) == (("embed.weight", "head.weight"),)
    for together in (small.UNITS, [*small.UNITS, (("embed", "norm", "head"), "head")]):
        assert split_ties(describe(module, together)) == ()
    with fake_world(Layout(1, 4), 0) as mesh:
        shard(module, apart, mesh)
        with pytest.raises(ValueError, match="already managed by another FSDP group"):
            small.step(module)
    module = small.make()
    together = [*small.UNITS, (("embed", "norm", "head"), "head")]
    model = describe(module, together)
    with fake_world(Layout(1, 4), 0) as mesh:
        shard(module, together, mesh)
        sizes = [sum(p._sharded_param_data.numel() for p in g.fsdp_params) for g in param_groups(module)]
        assert sorted(sizes) == sorted(group.stored_parameters for group in groups(Request(model, Layout(1, 4))))


@pytest.mark.parametrize("frozen", [False, True])
def test_mixed_dtypes_in_a_group(frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    module = small.make()
    module.blocks[1].norm.to(torch.bfloat16)
    if frozen:
        module.blocks[1].norm.requires_grad_(False)
    layout = Layout(1, 4)
    request = Request(describe(module, small.UNITS), layout)
    assert mixed_dtypes(request) == (() if frozen else ("blocks.1",))
    assert mixed_dtypes(request._replace(release="2.7.0")) == ("blocks.1",)
    ours = by_module_order(module, groups(request))
    with fake_world(layout, 3) as mesh:
        shard(module, small.UNITS, mesh)
        scales = Scales(module, monkeypatch)
        if not frozen:
            with pytest.raises(AssertionError, match="FSDP expects uniform original parameter dtype"):
                scales.forward()
            return
        # Gathered as bytes: each parameter in its own dtype. The frozen norm only counts in the all-gather.
        # Kept out of the computation: layer_norm takes one dtype only.
        module.blocks[1].norm.forward = lambda x: torch.nn.functional.layer_norm(x, (small.WIDTH,))
        scales.backward(scales.forward())
        assert [g.all_gather_bytes for g in ours] == [scales.gathered[n] for n in range(len(ours))]
        assert [g.reduce_scatter_bytes for g in ours] == [scales.scattered[n][0] for n in range(len(ours))]


def test_sources_are_found_in_pytorch() -> None:
    for identifier, (dotted, words) in SOURCES.items():
        parts = dotted.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            try:
                found: Any = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            for attribute in parts[cut:]:
                found = inspect.unwrap(getattr(found, attribute))
            text = " ".join(inspect.getsource(found).split())
            assert " ".join(words.replace("#", " ").split()) in " ".join(text.replace("# ", "").split()), identifier
            break
        else:
            raise AssertionError(f"{dotted} is not in this PyTorch")


def test_every_fact_has_a_source() -> None:
    module = small.make()
    seen = set()
    for layout in (Layout(1, 4), Layout(2, 4)):
        for extra in ({}, {"reshard_after_forward": False}, {"reshard_after_forward": 2}, {"strategy": "none"}):
            request = Request(describe(module, small.UNITS), layout, mp_param_dtype="bfloat16", **extra)  # type: ignore[arg-type]
            request = request._replace(placements={"blocks.0.up.weight": 1})
            seen |= {fact.id for fact in transients(request)}
    assert seen == set(SOURCES)


def test_reduce_dtype_follows_the_parameter_from_2_15_on() -> None:
    # 2.15 ("versionchanged:: 2.15" of MixedPrecisionPolicy): without a reduce_dtype gradients are reduced in the
    # parameter's dtype, twice the bytes of before for float32 parameters computed in bfloat16.
    model = describe(small.make(), small.UNITS)
    now = Request(model, Layout(1, 4), mp_param_dtype="bfloat16", release="2.14.0")
    then = now._replace(release="2.15.0")
    for before, after in zip(groups(now), groups(then), strict=True):
        assert after.reduce_scatter_bytes == 2 * before.reduce_scatter_bytes
        assert after.all_gather_bytes == before.all_gather_bytes
    assert per_rank(now) == per_rank(then)
