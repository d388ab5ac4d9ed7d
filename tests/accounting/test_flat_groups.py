"""The collectives of FSDP1's flat parameters: sizes as the real FullyShardedDataParallel issues them on a fake process group."""

from __future__ import annotations

from typing import Any

import pytest

from shardguide.accounting import Layout, Request, flat_groups

from . import small
from .oracle import describe, fake_world
from .test_flat import LAYOUTS, wrap

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

POLICIES = [("", ""), ("bfloat16", ""), ("bfloat16", "float32"), ("", "bfloat16")]


def collectives(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Bytes of the whole tensors of every all-gather, reduce-scatter and all-reduce from now on."""
    import torch.distributed as dist

    seen: dict[str, list[int]] = {"all_gather": [], "reduce_scatter": [], "all_reduce": []}
    gather, scatter, reduce = dist.all_gather, dist.reduce_scatter_single, dist.all_reduce

    def all_gather(outputs: list[Any], source: Any, **more: Any) -> Any:
        seen["all_gather"].append(sum(one.nbytes for one in outputs))
        return gather(outputs, source, **more)

    def reduce_scatter(output: Any, source: Any, **more: Any) -> Any:
        seen["reduce_scatter"].append(source.nbytes)
        return scatter(output, source, **more)

    def all_reduce(tensor: Any, **more: Any) -> Any:
        seen["all_reduce"].append(tensor.nbytes)
        return reduce(tensor, **more)

    monkeypatch.setattr(dist, "all_gather", all_gather)
    monkeypatch.setattr(dist, "reduce_scatter_single", reduce_scatter)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return seen


@pytest.mark.parametrize(("layout", "ranks"), LAYOUTS[1:], ids=str)
@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("strategy", ["", "SHARD_GRAD_OP"])
def test_sizes_and_how_often(
    monkeypatch: pytest.MonkeyPatch, strategy: str, policy: tuple[str, str], use_orig_params: bool,
    layout: Layout, ranks: list[int],
) -> None:  # fmt: skip
    """Blocks are gathered twice and the root once; SHARD_GRAD_OP gathers everything once; each is reduced once."""
    import torch
    from torch.distributed.fsdp import MixedPrecision

    if strategy and layout.replicate_size > 1:
        strategy = "_HYBRID_SHARD_ZERO2"
    module = small.make(width=5, inner=3)
    request = Request(
        describe(module, small.UNITS), layout, use_orig_params=use_orig_params,
        mp_param_dtype=policy[0], mp_reduce_dtype=policy[1],
    )  # fmt: skip
    groups = flat_groups(request)
    assert [group.root for group in groups] == [False, False, False, True]
    param, reduce = (getattr(torch, name) if name else None for name in policy)
    mixed = MixedPrecision(param_dtype=param, reduce_dtype=reduce, cast_forward_inputs=True)
    with fake_world(layout, ranks[0]) as mesh:
        wrapped = wrap(module, mesh, layout, use_orig_params, strategy, mixed_precision=mixed)
        seen = collectives(monkeypatch)
        small.step(wrapped)
    twice = 1 if strategy else 2
    gathered = [group.all_gather_bytes for group in groups for _ in range(1 if group.root else twice)]
    assert sorted(seen["all_gather"]) == sorted(gathered)
    assert sorted(seen["reduce_scatter"]) == sorted(group.reduce_scatter_bytes for group in groups)
    expected = sorted(group.all_reduce_bytes for group in groups) if layout.replicate_size > 1 else []
    assert sorted(seen["all_reduce"]) == expected


@pytest.mark.parametrize("strategy", ["", "SHARD_GRAD_OP"])
@pytest.mark.parametrize("param_dtype", ["", "bfloat16"])
def test_what_offload_copies(monkeypatch: pytest.MonkeyPatch, param_dtype: str, strategy: str) -> None:
    """FSDP1 copies every shard, root included, before forward and before backward, and every gradient shard back once."""
    import torch
    from torch.distributed.fsdp import CPUOffload, MixedPrecision, _runtime_utils
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    # Pinning and streams need an accelerator; what is counted here are the calls that copy, and the tensors they copy.
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *_, **__: self)
    monkeypatch.setattr(torch.cpu.Stream, "synchronize", lambda self: None, raising=False)
    to_device: list[int] = []
    to_host: list[int] = []
    pre_unshard, offload = FlatParamHandle.pre_unshard, _runtime_utils._offload_grad

    def counted(self: Any) -> Any:
        to_device.append(self.flat_param._local_shard.nbytes)
        return pre_unshard(self)

    def copied(state: Any, handle: Any, gradient: Any) -> None:
        offload(state, handle, gradient)
        to_host.append(handle.flat_param._cpu_grad.nbytes)

    monkeypatch.setattr(FlatParamHandle, "pre_unshard", counted)
    monkeypatch.setattr(_runtime_utils, "_offload_grad", copied)
    layout = Layout(1, 4)
    module = small.make()
    groups = flat_groups(Request(describe(module, small.UNITS), layout, mp_param_dtype=param_dtype))
    mixed = MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True) if param_dtype else None
    with fake_world(layout, 0) as mesh:
        wrapped = wrap(module, mesh, layout, True, strategy, mixed_precision=mixed, cpu_offload=CPUOffload(True))
        small.step(wrapped)
    shards = sorted(group.shard_bytes for group in groups)
    assert sorted(to_device) == sorted(2 * shards)
    assert sorted(to_host) == shards
