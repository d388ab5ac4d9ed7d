"""The FSDP2 patterns on real processes: how models are wrapped, laid out over ranks and built.

Each training is compared with one process that has all the data. float32 differs by the order of sums only (``models.CLOSE``).
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FSDPModule, fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402

from tests.snippets import gloo  # noqa: E402

from . import models  # noqa: E402
from .load import load  # noqa: E402
from .models import Trained, ids, mesh, next_token, reference, same, seeded, train  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = 3


def groups(model: nn.Module) -> list[list[str]]:
    """The communication groups: the parameters of each, in the order in which they were made. Read from the state that
    fully_shard keeps, after a forward has named everything."""
    found: dict[int, list[str]] = {}
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                found[id(group)] = sorted(parameter._param_fqn for parameter in group.fsdp_params)
    return sorted(found.values())


def blocks_and_rest(model: nn.Module) -> list[list[str]]:
    """What one group per layer and one for the rest look like."""
    names = [name for name, _ in model.named_parameters()]
    layers = [sorted(name for name in names if name.startswith(f"layers.{i}.")) for i in range(len(model.layers))]
    return sorted([*layers, sorted(name for name in names if not name.startswith("layers."))])


def test_shard() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, list[list[str]], set[Any]]:
        gloo.init()
        model = seeded(models.Transformer)
        model = load("fsdp2-shard")["shard"](model, model.layers)
        placements = {parameter.placements for parameter in model.parameters()}
        return train(model, models.momentum(model), batches[rank]), groups(model), placements

    results = gloo.run(2, body)
    plain = seeded(models.Transformer)
    assert results[0][1] == blocks_and_rest(plain)
    assert results[0][2] == {(Shard(0),)}
    same([result[0] for result in results], reference(plain, batches))


def test_wrap_transformer() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, list[list[str]], bool]:
        gloo.init()
        model = seeded(models.Transformer)
        load("fsdp2-wrap-transformer")["shard_transformer"](
            model, mesh(2), models.Block, model.embed, model.norm, model.head
        )
        optimizer = models.momentum(model)  # before a forward: see test_optimizer
        bare = seeded(models.Transformer)
        for layer in bare.layers:
            fully_shard(layer, mesh=mesh(2))
        with torch.no_grad():
            model(batches[rank, 0])
            bare(batches[rank, 0])
        assert not isinstance(bare.layers[0].up.weight, DTensor), "without a root, each block is one"
        assert isinstance(model.layers[0].up.weight, DTensor)
        kept = not isinstance(model.head.weight, DTensor) and isinstance(model.embed.weight, DTensor)
        return train(model, optimizer, batches[rank]), groups(model), kept

    results = gloo.run(2, body)
    assert results[0][2], "after forward the head is still gathered and the embedding is not"
    blocks = [group for group in blocks_and_rest(seeded(models.Transformer)) if group[0].startswith("layers")]
    assert results[0][1] == sorted([*blocks, ["embed.weight"], ["head.weight", "norm.bias", "norm.weight"]])
    same([result[0] for result in results], reference(seeded(models.Transformer), batches))


def test_wrap_moe() -> None:
    def build() -> nn.Module:
        return models.Transformer(block=models.Experts)

    batches = ids(4, STEPS, 2)

    def body(rank: int) -> tuple[Trained, dict[str, Any], tuple[int, ...]]:
        gloo.init()
        model = seeded(build)
        load("fsdp2-wrap-moe")["shard_moe"](model, model.layers, mesh(4))
        placements = {name: parameter.placements for name, parameter in model.named_parameters()}
        shape = tuple(model.layers[0].up.to_local().shape)
        return train(model, models.momentum(model), batches[rank]), placements, shape

    results = gloo.run(4, body)
    for name, placements in results[0][1].items():  # 3 experts and 4 ranks
        assert placements == ((Shard(1),) if name.endswith((".up", ".down")) else (Shard(0),)), name
    assert {result[2] for result in results} == {(3, models.WIDTH // 4, 24)}, "an equal part of every expert"
    same([result[0] for result in results], reference(seeded(build), batches))


def classify(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def test_wrap_vision() -> None:
    def build() -> nn.Module:
        return models.Vision(lambda channels: nn.GroupNorm(1, channels))

    images = models.numbers(2, STEPS, 3, 3, 8, 8)
    batches = [[(images[r, s], torch.tensor([r, s, r + s])) for s in range(STEPS)] for r in range(2)]

    def body(rank: int) -> tuple[Trained, int, list[list[float]], list[list[float]]]:
        gloo.init()
        names = load("fsdp2-wrap-vision")
        model = seeded(build)
        names["shard_vision"](model, model.stages, mesh(2))
        trained, count = train(model, models.momentum(model), batches[rank], classify), len(groups(model))
        # BatchNorm, for the statistics: one forward moves them, each rank's by its own images.
        model = seeded(lambda: models.Vision(nn.BatchNorm2d))
        names["shard_vision"](model, model.stages, mesh(2))
        model(images[rank, 0])
        before = [buffer.tolist() for name, buffer in model.named_buffers() if "running" in name]
        names["average_statistics"](model)
        return trained, count, before, [buffer.tolist() for name, buffer in model.named_buffers() if "running" in name]

    results = gloo.run(2, body)
    assert results[0][1] == 2 + 4 + 1, "two whole stages, four blocks of the late stages, the root"
    same([result[0] for result in results], reference(seeded(build), batches, classify))
    assert results[0][2] != results[1][2]
    for first, second, one, other in zip(results[0][2], results[1][2], results[0][3], results[1][3], strict=True):
        assert one == other == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)], rel=1e-6)


def contrast(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(*batch), torch.arange(len(batch[0])))


def test_wrap_multi_tower() -> None:
    image, text = models.numbers(2, STEPS, 4, 3, 8), models.numbers(2, STEPS, 4, 3, 5, seed=2)
    batches = [[(image[r, s], text[r, s]) for s in range(STEPS)] for r in range(2)]

    def body(rank: int) -> tuple[torch.Tensor, Trained, int, str]:
        gloo.init()
        wrap = load("fsdp2-wrap-multi-tower")["shard_towers"]

        def sharded(*methods: str) -> nn.Module:
            model = seeded(models.TwoTowers)
            return wrap(model, [model.image, model.text], (models.Block, models.Feed), mesh(2), methods)

        model = sharded("encode_image")
        optimizer = models.momentum(model)
        first = model.encode_image(image[rank, 0]).detach()  # before any forward: the model must become the root
        trained = train(model, optimizer, batches[rank], contrast)
        # What the registration is for: a tower that runs first becomes a root of its own.
        other = sharded()
        other.image(image[rank, 0])
        with pytest.raises(RuntimeError, match="requires running forward through the root module first"):
            other(image[rank, 0], text[rank, 0])
        with pytest.raises(ValueError, match="scalar"):
            fully_shard(seeded(models.TwoTowers), mesh=mesh(2))
        return first, trained, len(groups(model))

    results = gloo.run(2, body)
    assert results[0][2] == 2 * 2 + 2 + 1
    plain = seeded(models.TwoTowers)
    plain.logit_scale = nn.Parameter(plain.logit_scale.detach().reshape(1))
    for rank, result in enumerate(results):
        torch.testing.assert_close(result[0], plain.encode_image(image[rank, 0]).detach(), **models.CLOSE)
    same([result[1] for result in results], reference(plain, batches, contrast))


def test_tied_weights() -> None:
    batches = ids(2, STEPS, 2)

    def build() -> nn.Module:
        return models.Transformer(tied=True)

    def body(rank: int) -> tuple[Trained, bool, list[list[str]]]:
        gloo.init()
        shard = load("fsdp2-tied-weights")["shard_tied"]
        model = seeded(build)
        shard(model, model.layers, model.embed, model.norm, model.head, mesh(2))
        trained = train(model, models.momentum(model), batches[rank])
        model.zero_grad()
        tied = model.embed.weight is model.head.weight
        # Untied models are refused, and two groups raise.
        with pytest.raises(ValueError, match="tie"):
            untied = seeded(models.Transformer)
            shard(untied, untied.layers, untied.embed, untied.norm, untied.head, mesh(2))
        parted = seeded(build)
        fully_shard(parted.embed, mesh=mesh(2))
        fully_shard(parted, mesh=mesh(2))
        assert parted.embed.weight is not parted.head.weight
        with pytest.raises(ValueError, match="shared with a parameter already managed by another FSDP group"):
            parted(batches[rank, 0])
        left = seeded(build)  # both left to the root
        fully_shard(left, mesh=mesh(2))
        same_loss = next_token(left, batches[rank, 0]).item() == pytest.approx(trained.losses[0], rel=1e-6)
        assert same_loss and model.head.weight is model.embed.weight
        return trained, tied, groups(model)

    results = gloo.run(2, body)
    assert all(result[1] for result in results), "still one tensor after training"
    assert ["embed.weight", "norm.bias", "norm.weight"] in results[0][2]
    same([result[0] for result in results], reference(seeded(build), batches))


def test_hybrid_mesh() -> None:
    batches = ids(4, STEPS, 2)

    def body(rank: int) -> tuple[Trained, set[Any], list[int], list[int]]:
        gloo.init()
        names = load("fsdp2-hybrid-mesh")
        device_mesh = names["make_mesh"](2)
        model = seeded(models.Transformer)
        names["shard_hybrid"](model, model.layers, device_mesh)
        placements = {parameter.placements for parameter in model.parameters()}
        ranks = [dist.get_process_group_ranks(device_mesh.get_group(name)) for name in ("replicate", "shard")]
        return train(model, models.momentum(model), batches[rank]), placements, *ranks

    results = gloo.run(4, body)
    assert results[0][1] == {(Replicate(), Shard(0))}
    assert [result[2] for result in results] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert [result[3] for result in results] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    same([result[0] for result in results], reference(seeded(models.Transformer), batches))


def test_reshard() -> None:
    batches = ids(4, STEPS, 2)
    right = reference(seeded(models.Transformer), batches)

    def body(rank: int) -> list[tuple[Trained, str, int]]:
        gloo.init()
        names, results = load("fsdp2-reshard"), []
        for name, *rest in (("shard_least_memory",), ("shard_least_communication",), ("shard_between", 2)):
            model = seeded(models.Transformer)
            names[name](model, model.layers, mesh(4), *rest)
            loss = next_token(model, batches[rank, 0])
            weight = model.layers[0].up.weight  # what the layer holds between forward and backward
            held = weight.to_local() if isinstance(weight, DTensor) else weight
            loss.backward()
            model.zero_grad()
            results.append((train(model, models.momentum(model), batches[rank]), type(weight).__name__, len(held)))
        return results

    results = gloo.run(4, body)
    assert [(kind, rows) for _, kind, rows in results[0]] == [("DTensor", 6), ("Parameter", 24), ("DTensor", 12)]
    for form in range(3):
        same([result[form][0] for result in results], right)


def test_cpu_offload() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[Trained, set[str]]:
        names = load("fsdp2-cpu-offload")
        device_mesh = names["make_mesh"]()  # sets up the process group too
        model = seeded(models.Transformer)
        names["shard_offloaded"](model, model.layers, device_mesh)
        devices = {parameter.to_local().device.type for parameter in model.parameters()}
        optimizer = models.momentum(model)
        next_token(model, batches[rank, 0]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # the CPU collective
        optimizer.zero_grad()
        return train(model, optimizer, batches[rank]), devices

    results = gloo.run(2, body)
    assert results[0][1] == {"cpu"}
    same([result[0] for result in results], reference(seeded(models.Transformer), batches))


def test_meta_init() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[dict[str, torch.Tensor], Trained, set[str], torch.Tensor, bool]:
        gloo.init()
        names = load("fsdp2-meta-init")
        model = names["build_sharded"](models.Transformer, lambda model: model.layers, mesh(2))
        devices = {tensor.device.type for tensor in [*model.parameters(), *model.buffers()]}
        start, local = models.whole(model), model.head.weight.to_local().detach().clone()
        trained = train(model, models.momentum(model), batches[rank])
        # A buffer that nothing fills is noticed, at the level of the module that owns it.
        table = nn.Module()
        table.register_buffer("table", torch.zeros(2), persistent=False)
        with pytest.raises(ValueError, match="nothing initialises inner"):
            outer = nn.Module()
            outer.inner = table
            names["initialise"](outer)
        return start, trained, devices, local

    results = gloo.run(2, body)
    assert results[0][2] == {"cpu"}, "nothing is left on the meta device"
    start = results[0][0]
    assert torch.equal(results[0][3], results[1][3]), "the CPU's fault that the pattern names: equal shards"
    assert start["norm.weight"].eq(1).all()
    assert start["embed.weight"].std() == pytest.approx(1, abs=0.15)
    plain = models.Transformer()
    plain.load_state_dict(start)
    same([result[1] for result in results], reference(plain, batches))
