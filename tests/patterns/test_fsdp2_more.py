"""The FSDP2 patterns on real processes: around the step, data that runs out, and a whole training.

Each training is compared with one process that has all the data. float32 differs by the order of sums only (``models.CLOSE``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402

from tests.snippets import gloo  # noqa: E402

from . import models  # noqa: E402
from .load import load  # noqa: E402
from .models import Trained, ids, mesh, next_token, reference, same, seeded, sharded, token_losses, train  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = 3
CPU = torch.device("cpu")


def test_evaluate() -> None:
    samples, batches = ids(7), ids(2, STEPS, 2)
    parts = [[samples[0:2], samples[2:4]], [samples[4:6], samples[6:7]]]  # the last batch is short

    def body(rank: int) -> tuple[float, bool, Trained, bool]:
        gloo.init()
        evaluate = load("fsdp2-evaluate")["evaluate"]
        model = sharded(seeded(models.Transformer), 2)
        seen: list[bool] = []

        def loss_sum(model: Any, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
            seen.append(model.training or torch.is_grad_enabled())
            return token_losses(model, batch), len(batch)

        def interrupted(between: Callable[[Any], Any]) -> Trained:
            """Evaluation at the worst moment: the gradients are there, the step is still to come."""
            model = sharded(seeded(models.Transformer), 2)
            optimizer, losses = models.momentum(model), []
            for batch in batches[rank]:
                loss = next_token(model, batch)
                loss.backward()
                between(model)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return Trained(losses, models.whole(model))

        mean = evaluate(model, parts[rank], loss_sum, CPU)
        trained = interrupted(lambda model: evaluate(model, parts[rank], loss_sum, CPU))
        stale = interrupted(torch.no_grad()(lambda model: model(samples[:2])))  # the same without its last line
        # Why no_grad: with inference_mode instead, a training that starts with an evaluation fails.
        other = sharded(seeded(models.Transformer), 2)
        with torch.inference_mode():
            other(samples[:2])
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            other(samples[:2])
        return mean, any(seen) or not model.training, trained, stale.losses[1] == trained.losses[1]

    results = gloo.run(2, body)
    plain = seeded(models.Transformer)
    right = token_losses(plain, samples).item() / 7
    assert [result[0] for result in results] == pytest.approx([right] * 2, rel=1e-6)
    assert not any(result[1] for result in results)
    same([result[2] for result in results], reference(plain, batches))
    assert not any(result[3] for result in results), "stale copies of the root's parameters"


def test_keep_gathered() -> None:
    batches = ids(2, STEPS, 2)

    def body(rank: int) -> tuple[list[int], Trained, float, float]:
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group

        gloo.init()
        gather, count = _fsdp_param_group.foreach_all_gather, [0]

        def counted(*arguments: Any) -> Any:
            count[0] += 1
            return gather(*arguments)

        _fsdp_param_group.foreach_all_gather = counted
        names = load("fsdp2-keep-gathered")
        model = sharded(seeded(models.Transformer), 2)
        optimizer, gathers = models.momentum(model), []
        with torch.no_grad(), names["gathered"](model):
            for _ in range(3):
                count[0] = 0
                model(batches[rank, 0])
                gathers.append(count[0])
        trained = train(model, optimizer, batches[rank])
        count[0] = 0
        next_token(model, batches[rank, 0]).backward()
        gathers.append(count[0])
        # Why free(): a step changes the shards, and what is gathered stays as it was.
        model.set_reshard_after_forward(False)
        with torch.no_grad():
            old = next_token(model, batches[rank, 0]).item()
            optimizer.step()
            stale = next_token(model, batches[rank, 0]).item() == old
            names["free"](model)
            fresh = next_token(model, batches[rank, 0]).item() != old
        return gathers, trained, stale, fresh

    results = gloo.run(2, body)
    # Three groups; in training, as the root is set to True too, three in forward and three in backward.
    assert results[0][0] == [3, 0, 0, 6]
    assert all(stale and fresh for *_, stale, fresh in results)
    same([result[1] for result in results], reference(seeded(models.Transformer), batches))


def test_forward_method() -> None:
    batches = ids(2, STEPS, 2)

    def scored(model: Any, batch: torch.Tensor) -> torch.Tensor:
        return model.score(batch).sin().mean()

    def body(rank: int) -> Trained:
        gloo.init()
        shard = load("fsdp2-forward-method")["shard_with_methods"]
        model = seeded(models.Transformer)
        shard(model, model.layers, mesh(2), [])
        with pytest.raises(RuntimeError, match="DTensor"):
            model.score(batches[rank, 0])
        model = seeded(models.Transformer)
        shard(model, model.layers, mesh(2), ["score"])
        return train(model, models.momentum(model), batches[rank], scored)

    plain = seeded(models.Transformer)
    optimizer = models.momentum(plain)
    for parameter in (plain.norm.weight, plain.norm.bias, plain.head.weight):  # not in the way of score()
        parameter.requires_grad_(False)
    same(gloo.run(2, body), reference(plain, batches, scored, lambda _: optimizer))


def test_generate() -> None:
    prompts = [ids(2, seed=3), ids(3, seed=4)]

    def alone(model: nn.Module, tokens: torch.Tensor, end: int, limit: int) -> list[list[int]]:
        """Each prompt by itself."""
        rows = []
        for row in tokens:
            new: list[int] = []
            while len(new) < limit and (not new or new[-1] != end):
                new.append(int(model(torch.cat([row, torch.tensor(new, dtype=torch.long)])[None])[0, -1].argmax()))
            rows.append(new)
        return rows

    plain = seeded(models.Transformer)
    with torch.no_grad():
        free = [alone(plain, tokens, -1, 8) for tokens in prompts]
        # An end token with which one rank is done before the other.
        ends = {
            end: [max(map(len, alone(plain, tokens, end, 8))) for tokens in prompts]
            for end in {token for rows in free for row in rows for token in row}
        }
        end = next(end for end, (first, second) in ends.items() if first < second)
        right = [alone(plain, tokens, end, 8) for tokens in prompts]

    def body(rank: int) -> torch.Tensor:
        gloo.init()
        model = sharded(seeded(models.Transformer), 2)
        return load("fsdp2-generate")["generate"](model, prompts[rank], end, 8)

    results = gloo.run(2, body)
    assert results[0].shape[1] == results[1].shape[1] == models.LENGTH + max(ends[end])
    for rank, result in enumerate(results):
        assert torch.equal(result[:, : models.LENGTH], prompts[rank])
        for row, new in zip(result[:, models.LENGTH :].tolist(), right[rank], strict=True):
            assert row == new + [end] * (len(row) - len(new))


def test_frozen_lora() -> None:
    batches = ids(2, STEPS, 2)
    pattern = load("fsdp2-frozen-lora")

    def adapted() -> nn.Module:
        """The same adapters without sharding."""
        model = models.Transformer()
        model.requires_grad_(False)
        for layer in model.layers:
            layer.up, layer.down = pattern["LoRA"](layer.up, 2), pattern["LoRA"](layer.down, 2)
        return model

    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def body(rank: int) -> tuple[Trained, int, int, list[str]]:
        gloo.init()
        torch.manual_seed(0)
        model = models.Transformer()
        optimizer = pattern["shard_lora"](model, model.layers, ("up", "down"), 2, mesh(2))
        trained = train(model, optimizer, batches[rank])
        return trained, len(optimizer.state), [name for name, p in model.named_parameters() if p.requires_grad]

    results = gloo.run(2, body)
    assert results[0][1] == len(results[0][2]) == 2 * 2 * 2
    assert all(".base." not in name for name in results[0][2])
    right = reference(seeded(adapted), batches, optimizer=adam)
    start = seeded(adapted).state_dict()
    moved = {name for name, tensor in right.parameters.items() if not torch.equal(tensor, start[name])}
    assert moved == set(results[0][2]), "adapters train, the rest does not"
    same([result[0] for result in results], right)


def test_ignored() -> None:
    batches = ids(2, STEPS, 2)

    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    def body(rank: int) -> tuple[Trained, bool]:
        gloo.init()
        names = load("fsdp2-ignored")
        model = seeded(models.Transformer)
        ignored = [model.norm.weight, model.layers[0].norm1.weight, model.layers[0].norm1.bias]
        optimizer = names["shard_without"](model, model.layers, ignored, mesh(2), CPU)
        whole = not any(isinstance(parameter, DTensor) for parameter in ignored) and model.norm.weight is ignored[0]
        losses = []
        for batch in batches[rank]:
            loss = next_token(model, batch)
            loss.backward()
            names["average_gradients"](ignored)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        trained = Trained(losses, models.whole(model))
        next_token(model, batches[rank, 0]).backward()
        for mixed in (
            lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
            lambda: torch.optim.AdamW(model.parameters(), fused=True).step(),
            lambda: torch.optim.AdamW(model.parameters(), foreach=True).step(),
        ):
            with pytest.raises(RuntimeError, match=r"got mixed torch\.Tensor and DTensor"):
                mixed()
        return trained, whole

    results = gloo.run(2, body)
    assert all(result[1] for result in results)
    same([result[0] for result in results], reference(seeded(models.Transformer), batches, optimizer=adam))


def test_unused_parameters() -> None:
    batches = ids(2, STEPS, 2)
    for rank in range(2):
        batches[rank, :, 0, 0] = torch.tensor([rank, rank, 1 - rank])  # each rank another expert, in every step

    def gradients(model: nn.Module, batch: torch.Tensor) -> dict[str, Any]:
        next_token(model, batch).backward()
        named = {name: p.grad for name, p in model.named_parameters() if p.grad is not None and "experts" in name}
        return {name: grad.to_local() if isinstance(grad, DTensor) else grad for name, grad in named.items()}

    def body(rank: int) -> tuple[Trained, dict[str, Any], dict[str, Any]]:
        gloo.init()
        model = seeded(models.Switched)
        shard = load("fsdp2-unused-parameters")["shard_branching"]
        shard(model, model.layers, mesh(2))
        trained = train(model, models.momentum(model), batches[rank])
        good = sharded(seeded(models.Switched), 2)
        good.set_reduce_scatter_unused_params(True)
        bad = sharded(seeded(models.Switched), 2)
        return trained, gradients(good, batches[rank, 0]), gradients(bad, batches[rank, 0])

    results = gloo.run(2, body)
    same([result[0] for result in results], reference(seeded(models.Switched), batches))
    # Without the setting: no error, as the two experts are of one size, and one rank's first expert is added to the
    # other's second. Each rank then has a gradient for its own one only.
    alone = [gradients(seeded(models.Switched), batches[rank, 0]) for rank in range(2)]
    for rank, (_, right, wrong) in enumerate(results):
        assert len(right) == 2 * len(wrong)
        for layer in range(2):
            name, other = (f"layers.{layer}.experts.{i}.weight" for i in (rank, 1 - rank))
            half = slice(8 * rank, 8 * rank + 8)
            torch.testing.assert_close(right[name], alone[rank][name][half] / 2, **models.CLOSE)
            mixed = (alone[rank][name] + alone[1 - rank][other])[half] / 2
            torch.testing.assert_close(wrong[name], mixed, **models.CLOSE)


def test_uneven_inputs_agree() -> None:
    counts = [4, 2, 3]
    data = [list(ids(count, 2, seed=10 + rank)) for rank, count in enumerate(counts)]

    def body(rank: int) -> tuple[Trained, Trained, int, list[int]]:
        gloo.init()
        names, results = load("fsdp2-uneven-inputs-agree"), []

        def endless() -> Iterator[torch.Tensor]:
            yield from data[rank]

        for batches in (
            names["equal_batches"](data[rank], len(data[rank]), CPU),
            names["batches_while_all_have_one"](endless(), CPU),
        ):
            model = sharded(seeded(models.Transformer), 3)
            results.append(train(model, models.momentum(model), list(batches)))
        dist.barrier()  # nobody is left in a collective
        # Nobody has anything, and one has nothing.
        none = [len(list(names["batches_while_all_have_one"](iter(()), CPU)))]
        none.append(len(list(names["batches_while_all_have_one"](iter([1] * rank), CPU))))
        dist.barrier()
        return *results, none

    results = gloo.run(3, body)
    right = reference(seeded(models.Transformer), [batches[:2] for batches in data])
    for form in range(2):
        same([result[form] for result in results], right)
    assert [result[2] for result in results] == [[0, 0]] * 3


def test_uneven_inputs_pad() -> None:
    sizes = [[2, 2, 2, 1], [2], [2, 1]]  # samples per batch; the last two ranks run out, the last batches are short
    data = [[ids(size, seed=100 * rank + step) for step, size in enumerate(row)] for rank, row in enumerate(sizes)]

    def body(rank: int) -> Trained:
        gloo.init()
        model = sharded(seeded(models.Transformer), 3)
        epoch = load("fsdp2-uneven-inputs-pad")["train_epoch"]
        losses = epoch(model, models.momentum(model), data[rank], token_losses, ids(2, seed=5), CPU)
        return Trained(losses, models.whole(model))

    steps = [torch.cat([rank[step] for rank in data if step < len(rank)]) for step in range(4)]
    assert [len(step) for step in steps] == [6, 3, 2, 1]
    model = seeded(models.Transformer)
    right = train(model, models.momentum(model), steps, lambda m, batch: token_losses(m, batch) / len(batch))
    same(gloo.run(3, body), right)


def test_inspect() -> None:
    def body(rank: int) -> tuple[list[Any], list[Any], torch.Tensor, torch.Tensor]:
        gloo.init()
        names = load("fsdp2-inspect")
        model = seeded(models.Transformer)
        fully_shard(model, mesh=mesh(3))
        before = names["shards"](model)
        model(ids(2))  # the root's parameters are gathered now
        kinds = {type(parameter).__name__ for parameter in model.parameters()}
        return before, names["shards"](model), kinds, names["whole"](model, "head.weight")

    results = gloo.run(3, body)
    plain = seeded(models.Transformer)
    assert [name for name, *_ in results[0][0]] == [name for name, _ in plain.named_parameters()]
    assert all(before == after for before, after, *_ in results)
    assert all(result[2] == {"Parameter"} for result in results), "what parameters() shows after a forward"
    for rank, result in enumerate(results):
        rows = {name: row for name, *row in result[0]}
        # 32 rows over 3 ranks: torch.chunk gives 11, 11 and 10.
        assert rows["head.weight"] == [(32, 16), ((11, 11, 10)[rank], 16), str((Shard(0),))]
        assert torch.equal(result[3], plain.head.weight)


def test_full_loop(tmp_path: Path) -> None:
    batches, held_out = ids(2, STEPS, 2, 2), ids(2, 1, 3, seed=9)
    names = load("fsdp2-full-loop")

    def run(stop: int, folder: str, start_from: str = "") -> Callable[[int], list[float]]:
        def body(rank: int) -> list[float]:
            losses: list[float] = names["main"](
                models.Transformer,
                lambda model: model.layers,
                next_token,
                [list(step) for step in batches[rank, :stop]],
                list(held_out[rank]),
                str(tmp_path / folder),
                torch.float32,
                start_from and str(tmp_path / start_from),
            )
            return losses

        return body

    whole, half, rest = (gloo.run(2, body) for body in (run(3, "whole"), run(2, "half"), run(3, "rest", "half")))

    model = seeded(models.Transformer)
    optimizer, right = torch.optim.AdamW(model.parameters(), lr=3e-4), []
    for step in range(STEPS):
        loss = torch.stack([next_token(model, batch) for batch in batches[:, step].flatten(0, 1)]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        right.append(loss.item())
    with torch.no_grad():
        final = next_token(model, held_out.flatten(0, 2)).item()
    assert whole == [pytest.approx([*right, final], rel=1e-5)] * 2
    assert half[0][:2] == whole[0][:2]
    assert rest[0] == pytest.approx(whole[0][2:], rel=1e-6), "resumed, with the optimizer's states"
