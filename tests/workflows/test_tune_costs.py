"""The bytes of the table against PyTorch: every collective of one step of the real wrappers on a fake process group."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from shardguide.accounting import Layout as MeshLayout
from shardguide.code.current import from_python
from shardguide.guidance.record import Release
from shardguide.workflows.numbers import Layout
from shardguide.workflows.situation import Situation
from shardguide.workflows.tune.costs import Side, costs
from shardguide.workflows.tune.now import Now, read

from ..accounting import small
from ..accounting.oracle import describe, dp_mesh, fake_world

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

HEAD = "import torch\nfrom torch.distributed.fsdp import *\nfrom torch.nn.parallel import DistributedDataParallel\n"
POLICY = "policy = {kind}(param_dtype=torch.bfloat16, reduce_dtype={reduce}, cast_forward_inputs=True)\n"


def situation(module: Any, world: int) -> Situation:
    return Situation(
        release=Release("2.13.0", "user"), minor=(2, 13), model=describe(module, small.UNITS), world=world, nodes=1, tp=1,
        device="cpu", gpu="", memory=None, host_memory=None, bf16=None, compute_capability="", intra="", inter="",
        optimizer="adamw", param_dtype="float32", strategy="auto", shard_size=0, offload="auto", memo={},
    )  # fmt: skip


def counted(patch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes of the whole tensors of all-gathers, reduce-scatters and all-reduces from now on."""
    import torch.distributed as dist

    seen = {"gathered": 0, "scattered": 0, "reduced": 0, "largest_gather": 0, "largest_scatter": 0}

    def saw(kind: str, largest: str, nbytes: int) -> None:
        seen[kind] += nbytes
        if largest:
            seen[largest] = max(seen[largest], nbytes)

    def wrap(name: str, kind: str, largest: str, whole: Any) -> None:
        real = getattr(dist, name)

        def call(*given: Any, **more: Any) -> Any:
            saw(kind, largest, whole(*given, **more))
            return real(*given, **more)

        patch.setattr(dist, name, call)

    wrap("all_gather", "gathered", "largest_gather", lambda outputs, *_, **__: sum(one.nbytes for one in outputs))
    for name in ("all_gather_single", "all_gather_into_tensor"):
        wrap(name, "gathered", "largest_gather",
             lambda output=None, *_, **more: (output if output is not None else more["output_tensor"]).nbytes)  # fmt: skip
    for name in ("reduce_scatter_single", "reduce_scatter_tensor"):
        wrap(name, "scattered", "largest_scatter",
             lambda output=None, source=None, *_, **more: (source if source is not None else more["input"]).nbytes)  # fmt: skip
    wrap("all_reduce", "reduced", "", lambda tensor, *_, **__: tensor.nbytes)
    return seen


def checked(s: Situation, now: Now, layout: Layout, seen: dict[str, int]) -> None:
    found = costs(s, Side(now, layout))
    assert not found.assumed
    assert {name: getattr(found, name) for name in seen} == seen


FSDP2 = """
for layer in model.blocks:
    fully_shard(layer, mp_policy=policy{block})
fully_shard(model, mp_policy=policy{root})
optimizer = torch.optim.AdamW(model.parameters())
"""


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("reduce", ["None", "torch.float32"])
@pytest.mark.parametrize(
    ("block", "root"),
    [("", ""), (", reshard_after_forward=False", ""), (", reshard_after_forward=True", ", reshard_after_forward=True"),
     (", reshard_after_forward=2", ", reshard_after_forward=False")],
)  # fmt: skip
def test_fsdp2_code(monkeypatch: pytest.MonkeyPatch, block: str, root: str, reduce: str, replicas: int) -> None:
    """The same text is read for the table and run with PyTorch; padding included (odd sizes over 4 ranks)."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    text = POLICY.format(kind="MixedPrecisionPolicy", reduce=reduce) + FSDP2.format(block=block, root=root)
    model = small.make()
    layout = MeshLayout(replicas, 4)
    s = situation(model, layout.world)
    now = read(from_python(HEAD + text, "train.py"), {}, (2, 13))
    with fake_world(layout, 0) as mesh:
        whole = {"model": model, "torch": torch, "MixedPrecisionPolicy": MixedPrecisionPolicy}
        data = dp_mesh(mesh, layout)
        whole["fully_shard"] = lambda module, **more: fully_shard(module, mesh=data, **more)
        exec(text, whole)  # noqa: S102 - the text of this file
        seen = counted(monkeypatch)
        small.step(model)
    strategy = "hybrid" if replicas > 1 else now.strategy
    assert now.strategy == ("grad_op" if "False" in block else "full")
    checked(s, now._replace(strategy=strategy), Layout(strategy, replicas, 4, 1), seen)


FSDP1 = """
model = FullyShardedDataParallel(
    model, auto_wrap_policy=wrap, mixed_precision=policy, use_orig_params={orig}, sharding_strategy=ShardingStrategy.{strategy},
    device_id=torch.device("cpu"),
)
optimizer = torch.optim.AdamW(model.parameters())
"""


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("orig", [True, False])
@pytest.mark.parametrize("reduce", ["None", "torch.float32"])
@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP"])
def test_fsdp1_code(monkeypatch: pytest.MonkeyPatch, strategy: str, reduce: str, orig: bool, wrapped: bool) -> None:
    import torch
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = small.make()
    s = situation(model, 4)
    name = type(model.blocks[0]).__name__
    wrap = f"wrap = ModuleWrapPolicy({{{name}}})\n" if wrapped else "wrap = None\n"
    text = wrap + POLICY.format(kind="MixedPrecision", reduce=reduce) + FSDP1.format(orig=orig, strategy=strategy)
    imports = f"{HEAD}from torch.distributed.fsdp.wrap import ModuleWrapPolicy\nfrom model import {name}\n"
    now = read(from_python(imports + text, "train.py"), {}, (2, 13))
    assert now.orig_params is orig and now.wrapping == (("block",) if wrapped else ())
    with fake_world(MeshLayout(1, 4), 0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole: dict[str, Any] = {"model": model, "torch": torch, name: type(model.blocks[0])}
        for one in ("FullyShardedDataParallel", "ShardingStrategy", "MixedPrecision"):
            whole[one] = getattr(fsdp, one)
        whole["ModuleWrapPolicy"] = ModuleWrapPolicy
        exec(text, whole)  # noqa: S102 - the text of this file
        seen = counted(monkeypatch)
        small.step(whole["model"])
    checked(s, now, Layout(now.strategy, 1, 4, 1), seen)


def test_ddp_reduces_every_gradient_once() -> None:
    """DDP's buckets together, which its hook sees, are the gradients in the parameters' dtype, whatever autocast does."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = small.make()
    s = situation(model, 4)
    buckets: list[int] = []

    def hook(state: object, bucket: Any) -> Any:
        buckets.append(bucket.buffer().nbytes)
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    hook.__annotations__ = {"bucket": torch.distributed.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    with fake_world(MeshLayout(1, 4), 0):
        wrapped = DistributedDataParallel(model, broadcast_buffers=False, init_sync=False)
        wrapped.register_comm_hook(None, hook)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            small.step(wrapped)
    now = Now(api="ddp", strategy="none", param="bfloat16", known=True)
    found = costs(s, Side(now, Layout("none", 4, 1, 1)))
    assert found.reduced == sum(buckets) and found.gathered == found.scattered == 0
