"""FSDP1's flat parameters: the real FullyShardedDataParallel on a fake process group, and once with real processes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from shardguide.accounting import Layout, Request, flat_per_rank
from shardguide.guidance.errors import UnusableInput

from . import small
from .oracle import describe, dp_mesh, fake_world, run_of, state_bytes

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

LAYOUTS = [
    (Layout(1, 1), [0]),
    (Layout(1, 2), [0, 1]),
    (Layout(1, 7), [0, 3, 5, 6]),
    (Layout(1, 64), [0, 1, 31, 62, 63]),
    (Layout(2, 4), [0, 3, 7]),
]


def wrap(module: Any, mesh: Any, layout: Layout, use_orig_params: bool, strategy: str = "", **arguments: Any) -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    strategy = strategy or ("HYBRID_SHARD" if layout.replicate_size > 1 else "FULL_SHARD")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FullyShardedDataParallel(
            module, device_mesh=dp_mesh(mesh, layout), sharding_strategy=ShardingStrategy[strategy],
            auto_wrap_policy=ModuleWrapPolicy({type(module.blocks[0])}), device_id=torch.device("cpu"),
            use_orig_params=use_orig_params, **arguments,
        )  # fmt: skip


def flat_params(wrapped: Any) -> list[Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return [m._handle.flat_param for m in FullyShardedDataParallel.fsdp_modules(wrapped) if m._handle is not None]


def owned(flat: Any, sharded: bool) -> int:
    """Elements of the model's parameters in a rank's shard, read off FSDP1's own metadata."""
    if not sharded:
        return sum(flat._numels)
    return sum(info.numel_in_shard for info in flat._shard_param_infos if info.in_shard)


def gradient_bytes(wrapped: Any) -> int:
    """Bytes of the gradients' storages; a shard of nothing but padding has a gradient that no parameter views."""
    storages = {}
    for parameter in [*wrapped.parameters(), *flat_params(wrapped)]:
        if parameter.grad is not None:
            storages[parameter.grad.untyped_storage().data_ptr()] = parameter.grad.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(("layout", "ranks"), LAYOUTS, ids=str)
@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize("strategy", ["", "SHARD_GRAD_OP"])
@pytest.mark.parametrize("sizes", [(12, 28), (13, 27), (5, 3)])
@pytest.mark.parametrize(
    ("name", "kind", "hyper"),
    [("adamw", "AdamW", {}), ("sgd", "SGD", {"momentum": 0.9}), ("adagrad", "Adagrad", {})],
    ids=str,
)
def test_every_strategy(
    name: str, kind: str, hyper: dict[str, Any], sizes: tuple[int, int], strategy: str, use_orig_params: bool,
    layout: Layout, ranks: list[int],
) -> None:  # fmt: skip
    import torch

    if strategy and layout.replicate_size > 1:
        strategy = "_HYBRID_SHARD_ZERO2"
    for rank in ranks:
        module = small.make(width=sizes[0], inner=sizes[1])
        request = Request(
            describe(module, small.UNITS), layout, optimizer=name, hyper=hyper, use_orig_params=use_orig_params
        )
        run = run_of(flat_per_rank(request), rank)
        with fake_world(layout, rank) as mesh:
            wrapped = wrap(module, mesh, layout, use_orig_params, strategy)
            flats = flat_params(wrapped)
            assert run.stored_parameters == sum(flat.numel() for flat in flats)
            assert run.parameters == sum(owned(flat, layout.shard_size > 1) for flat in flats)
            assert run.parameter_bytes == sum(flat.untyped_storage().nbytes() for flat in flats)
            optimizer = getattr(torch.optim, kind)(wrapped.parameters(), **hyper)
            small.step(wrapped)
            assert run.gradient_bytes == gradient_bytes(wrapped)
            optimizer.step()
            assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)


@pytest.mark.parametrize("param_dtype", ["", "bfloat16"])
def test_alignment_follows_the_compute_dtype(param_dtype: str) -> None:
    import torch
    from torch.distributed.fsdp import MixedPrecision

    layout = Layout(1, 4)
    for rank in range(4):
        module = small.make(width=5, inner=3)
        run = run_of(flat_per_rank(Request(describe(module, small.UNITS), layout, mp_param_dtype=param_dtype)), rank)
        policy = MixedPrecision(param_dtype=getattr(torch, param_dtype)) if param_dtype else None
        with fake_world(layout, rank) as mesh:
            wrapped = wrap(module, mesh, layout, True, mixed_precision=policy)
            assert run.stored_parameters == sum(flat.numel() for flat in flat_params(wrapped))
            assert run.parameters == sum(owned(flat, True) for flat in flat_params(wrapped))


def test_worked_example() -> None:
    # Four tensors of 15, 14, 15 and 14 float32 elements over 4 ranks. Laid end to end: 58, padded to 60.
    # Each aligned to 4 elements (16 bytes): they start at 0, 16, 32 and 48, the last ends at 62, padded to 64.
    import torch
    from torch import nn

    module = nn.Module()
    for number, size in enumerate((15, 14, 15, 14)):
        module.register_parameter(f"p{number}", nn.Parameter(torch.empty(size, device="meta")))
    model = describe(module, [])
    assert model.size == 58
    for use_orig_params, stored in ((False, 15), (True, 16)):
        runs = flat_per_rank(Request(model, Layout(1, 4), use_orig_params=use_orig_params))
        assert {run.stored_parameters for run in runs} == {stored}
        assert sum(run.parameters * (run.last_rank - run.first_rank + 1) for run in runs) == 58


def test_frozen_and_ignored() -> None:
    import torch

    layout = Layout(1, 3)
    for rank in range(3):
        module = small.make()
        module.blocks[0].requires_grad_(False)
        module.blocks[1].up.bias.requires_grad_(False)
        ignored = module.blocks[2].up.weight
        model = describe(module, small.UNITS, ignored={"blocks.2.up.weight"})
        run = run_of(flat_per_rank(Request(model, layout, optimizer="adamw")), rank)
        with fake_world(layout, rank) as mesh:
            wrapped = wrap(module, mesh, layout, True, ignored_states=[ignored])
            flats = flat_params(wrapped)
            assert run.stored_parameters == sum(flat.numel() for flat in flats) + ignored.numel()
            assert run.parameters == sum(owned(flat, True) for flat in flats) + ignored.numel()
            optimizer = torch.optim.AdamW([p for p in wrapped.parameters() if p.requires_grad])
            small.step(wrapped)
            optimizer.step()
            assert (run.optimizer_bytes, run.optimizer_scalar_bytes) == state_bytes(optimizer)
            # The flat gradient, and the ignored parameter's own.
            assert run.gradient_bytes == gradient_bytes(wrapped)


def test_what_fsdp1_refuses() -> None:
    import torch

    with fake_world(Layout(1, 2), 0) as mesh:
        module = small.make()
        module.blocks[1].up.bias.requires_grad_(False)
        model = describe(module, small.UNITS)
        with pytest.raises(ValueError, match="has both parameters with requires_grad=True and False"):
            wrap(module, mesh, Layout(1, 2), False)
        with pytest.raises(UnusableInput, match="both frozen and trainable"):
            flat_per_rank(Request(model, Layout(1, 2), use_orig_params=False))
        module = small.make()
        module.blocks[1].up.to(torch.bfloat16)
        model = describe(module, small.UNITS)
        with pytest.raises(ValueError, match="Must flatten tensors with uniform dtype"):
            wrap(module, mesh, Layout(1, 2), True)
        with pytest.raises(UnusableInput, match="must flatten tensors with uniform dtype"):
            flat_per_rank(Request(model, Layout(1, 2)))


@pytest.mark.parametrize("world", [8, 96])
def test_a_layer_of_llama(world: int) -> None:
    # Llama-3.1-8B's widths, one block of two, without memory: FSDP1's own flattening on the meta device.
    import torch
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    from shardguide.knowledge.families import index

    from .zoo import LLAMA_3_1_8B

    model = index.build(LLAMA_3_1_8B | {"num_hidden_layers": 1}, "transformers5")
    total = 0
    groups = {"block": [], "root": []}
    for parameter in model.parameters:
        groups["block" if ".layers." in parameter.name else "root"].append(torch.empty(parameter.shape, device="meta"))
    for tensors in groups.values():
        flat = FlatParamHandle.flatten_tensors(_Handle(world), tensors, 4)
        total += FlatParamHandle._get_unpadded_shard(flat, 0, world)[0].numel()
    runs = flat_per_rank(Request(model, Layout(1, world), param_dtype="float32"))
    assert {run.stored_parameters for run in runs} == {total}
    assert sum(run.parameters * (run.last_rank - run.first_rank + 1) for run in runs) == model.size


class _Handle:
    """What flatten_tensors asks of its handle."""

    def __init__(self, world: int) -> None:
        self.world_size = world

    def _validate_tensors_to_flatten(self, tensors: list[Any]) -> tuple[Any, None, Any]:
        return tensors[0].dtype, None, tensors[0].device
