"""The FullyShardedDataParallel patterns on real ranks, compared with one process that has the global batch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: E402
from torch.distributed.fsdp import _init_utils, fully_shard  # noqa: E402

from tests.patterns.load import load  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from tests.snippets.models import LENGTH, VOCABULARY, Block, Own  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # FSDP1's own state-dict contexts, entered by get_state_dict
]
ROWS = 4  # of the global batch


def loss_fn(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return ids[:, :-1], ids[:, 1:]


def mine(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = (rows.chunk(dist.get_world_size())[dist.get_rank()] for rows in batch(step))
    return inputs, targets


def plain(seed: int = 0) -> Own:
    torch.manual_seed(seed)
    return Own()


def adamw(model: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def mean(value: float | torch.Tensor) -> float:
    total = torch.as_tensor(value).detach().clone().float()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def alone(steps: int = 4) -> tuple[list[float], dict[str, torch.Tensor]]:
    """One process: losses of the global batch, and the parameters after training."""
    model = plain()
    optimizer = adamw(model)
    losses = [step(model, optimizer, *batch(number)) for number in range(steps)]
    return losses, {name: p.detach() for name, p in model.named_parameters()}


def together(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    return [mean(step(model, optimizer, *mine(number))) for number in steps]


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters, whole, under their original names."""
    options = StateDictOptions(full_state_dict=True)
    return {name: tensor.clone() for name, tensor in get_model_state_dict(model, options=options).items()}


def close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], atol: float = 1e-4) -> bool:
    """Adam divides by the gradient's size, so rounding in tiny gradients is enlarged: 1 % of one step of lr."""
    return left.keys() == right.keys() and all(
        torch.allclose(left[name], right[name], atol=atol, rtol=1e-4) for name in left
    )


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def on_ranks(world: int, body: Callable[[int], Any]) -> list[Any]:
    def with_group(rank: int) -> Any:
        gloo.init()
        return body(rank)

    return gloo.run(world, with_group)


class Counted:
    """Counts the all-gathers that FSDP1 issues within the context."""

    def __enter__(self) -> Counted:
        self.gathers = 0
        self.real = dist.all_gather  # what FSDP1 calls for tensors on the CPU

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.gathers += 1
            return self.real(*args, **kwargs)

        dist.all_gather = counting
        return self

    def __exit__(self, *_: object) -> None:
        dist.all_gather = self.real


def test_fsdp1_shard() -> None:
    ns = load("fsdp1-shard")

    def body(rank: int) -> Any:
        model = ns["shard"](plain(), Block)
        optimizer = adamw(model)
        units = [name for name, module in model.named_modules() if isinstance(module, FSDP)]
        losses = [mean(ns["step"](model, optimizer, *mine(number), loss_fn)) for number in range(4)]
        return losses, values(model), units, sum(p.numel() for p in model.parameters())

    losses, parameters = alone()
    got = on_ranks(2, body)
    for ours, after, units, _ in got:
        assert ours == pytest.approx(losses, abs=1e-5)
        assert close(after, parameters)
        assert units == ["", "_fsdp_wrapped_module.layers.0", "_fsdp_wrapped_module.layers.1"]
    whole = sum(p.numel() for p in plain().parameters())
    assert whole <= sum(row[3] for row in got) <= whole + 2  # the ranks' shards together are the model


def test_fsdp1_mixed_precision() -> None:
    """Equal to what the dtypes mean by hand: bf16 copies for forward and backward, fp32 sums, fp32 update."""
    ns = load("fsdp1-mixed-precision")

    def body(rank: int) -> Any:
        model = ns["shard"](plain(), Block)
        optimizer = adamw(model)
        losses = together(model, optimizer, range(4))
        dtypes = {p.dtype for p in model.parameters()} | {s["exp_avg"].dtype for s in optimizer.state.values()}
        return losses, values(model), dtypes, model(mine(0)[0]).dtype, model.norm.offset.dtype

    master = plain()
    optimizer = adamw(master)
    losses = []
    for number in range(4):
        parts = []
        for inputs, targets in zip(*(rows.chunk(2) for rows in batch(number)), strict=True):
            low = copy.deepcopy(master)
            for parameter in low.parameters():
                parameter.data = parameter.data.bfloat16()
            loss = loss_fn(low(inputs), targets)
            loss.backward()
            parts.append((float(loss.detach()), [p.grad.float() for p in low.parameters()]))
        for parameter, *gradients in zip(master.parameters(), *(grads for _, grads in parts), strict=True):
            parameter.grad = sum(gradients) / 2
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(loss for loss, _ in parts) / 2)
    expected = {name: p.detach() for name, p in master.named_parameters()}
    for ours, after, dtypes, output, buffer in on_ranks(2, body):
        assert ours == pytest.approx(losses, abs=1e-4)
        assert close(after, expected, atol=1e-3)
        assert dtypes == {torch.float32} and output == torch.bfloat16 and buffer == torch.float32
    # Not vacuous: plain fp32 training is farther away than the tolerance.
    assert losses != pytest.approx(alone()[0], abs=1e-4)


def test_fsdp1_hybrid() -> None:
    ns = load("fsdp1-hybrid")

    def body(rank: int) -> Any:
        model = ns["shard"](plain(), Block, 2)
        shard, replicate = model.process_group, model._inter_node_pg
        groups = [dist.get_process_group_ranks(group) for group in (shard, replicate)]
        optimizer = adamw(model)
        losses, after = together(model, optimizer, range(4)), values(model)
        with Counted() as counted:
            step(model, optimizer, *mine(0))
        return losses, after, groups, counted.gathers

    losses, parameters = alone()
    got = on_ranks(4, body)
    for ours, after, _, gathers in got:
        assert gathers == 5  # the layers' parameters are freed after forward and gathered again
        assert ours == pytest.approx(losses, abs=1e-5)
        assert close(after, parameters)
    assert [groups for _, _, groups, _ in got] == [
        [[0, 1], [0, 2]],
        [[0, 1], [1, 3]],
        [[2, 3], [0, 2]],
        [[2, 3], [1, 3]],
    ]


def test_fsdp1_clip() -> None:
    ns, limit = load("fsdp1-clip"), 0.3

    def body(rank: int) -> Any:
        model = load("fsdp1-shard")["shard"](plain(), Block)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        got = [ns["step"](model, optimizer, *mine(number), loss_fn, limit) for number in range(4)]
        loss_fn(model(mine(0)[0]), mine(0)[1]).backward()
        local = float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
        return [float(norm) for _, norm in got], values(model), local

    model = plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    norms = []
    for number in range(4):
        inputs, targets = batch(number)
        loss_fn(model(inputs), targets).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit)))
        optimizer.step()
        optimizer.zero_grad()
    assert min(norms) > limit
    (ours, after, local), (theirs, _, other) = on_ranks(2, body)
    assert ours == theirs == pytest.approx(norms, rel=1e-5)
    assert close(after, dict(model.named_parameters()), atol=1e-5)
    assert abs(local - other) > 1e-3  # the function sees each rank's shards: two ranks, two factors


def test_fsdp1_accumulate() -> None:
    ns = load("fsdp1-accumulate")

    def body(rank: int) -> Any:
        model = load("fsdp1-shard")["shard"](plain(), Block)
        optimizer = adamw(model)
        losses = []
        for number in range(4):
            inputs, targets = mine(number)
            micro = list(zip(inputs.chunk(2), targets.chunk(2), strict=True))
            losses.append(mean(ns["step"](model, optimizer, micro, loss_fn)))
        after, reductions = values(model), []
        real = dist.reduce_scatter_single
        dist.reduce_scatter_single = lambda *a, **k: reductions.append(1) or real(*a, **k)
        ns["step"](model, optimizer, [mine(0)] * 3, loss_fn)
        counted = len(reductions)
        without = load("fsdp1-shard")["shard"](plain(), Block)
        without.no_sync = contextlib.nullcontext
        other = adamw(without)
        for number in range(4):
            inputs, targets = mine(number)
            ns["step"](without, other, list(zip(inputs.chunk(2), targets.chunk(2), strict=True)), loss_fn)
        return losses, after, counted, values(without)

    losses, parameters = alone()
    for ours, after, reductions, without in on_ranks(2, body):
        assert ours == pytest.approx(losses, abs=1e-5)
        assert close(after, parameters) and close(without, parameters)  # with and without no_sync
        assert reductions == 3  # one for each unit, not one for each micro-batch as well


def test_fsdp1_activation_checkpointing() -> None:
    ns = load("fsdp1-activation-checkpointing")

    def body(rank: int) -> Any:
        model = ns["shard"](plain(), Block)
        optimizer = adamw(model)
        losses, after = together(model, optimizer, range(4)), values(model)
        order = [type(module).__name__ for name, module in model.named_modules() if name.count("layers.0")][:3]
        inner = next(m for m in model.layers[0].modules() if isinstance(m, Block))
        runs, gathers = [], []
        inner.register_forward_pre_hook(lambda *_: runs.append(1))
        for candidate in (model, load("fsdp1-shard")["shard"](plain(), Block)):
            with Counted() as counted:
                step(candidate, torch.optim.SGD(candidate.parameters(), lr=0.0), *mine(0))
            gathers.append(counted.gathers)
        return losses, after, order, len(runs), gathers

    losses, parameters = alone()
    for ours, after, order, runs, gathers in on_ranks(2, body):
        assert ours == pytest.approx(losses, abs=1e-5)
        assert close(after, parameters)
        assert order == ["FullyShardedDataParallel", "CheckpointWrapper", "Block"]
        assert runs == 2  # forward, and again in backward
        assert gathers == [5, 5]  # three units forward, two of them again backward: recomputing adds none


def _trained(shard: Callable[..., nn.Module]) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = shard(plain(), Block)
    optimizer = adamw(model)
    together(model, optimizer, range(2))
    return model, optimizer


def _file_round_trip(pattern: str, path: Path) -> None:
    """Save and load in one file, go on; then one process without FSDP goes on from the file."""
    ns, shard = load(pattern), load("fsdp1-shard")["shard"]

    def body(rank: int) -> Any:
        model, optimizer = _trained(shard)
        ns["save"](model, optimizer, path)
        through = together(model, optimizer, range(2, 4))
        resumed = shard(plain(7), Block)
        fresh = adamw(resumed, lr=0.5)
        ns["load"](resumed, fresh, path)
        return through, together(resumed, fresh, range(2, 4)), same(values(model), values(resumed))

    losses, _ = alone()
    for through, again, equal in on_ranks(2, body):
        assert again == through == pytest.approx(losses[2:], abs=1e-5)
        assert equal
    file = torch.load(path, weights_only=True)
    model = plain(7)
    model.load_state_dict(file["model"])
    optimizer = adamw(model, lr=0.5)
    set_optimizer_state_dict(model, optimizer, optim_state_dict=file["optimizer"])
    assert [step(model, optimizer, *batch(number)) for number in (2, 3)] == pytest.approx(losses[2:], abs=1e-5)


def test_fsdp1_state_dict(tmp_path: Path) -> None:
    _file_round_trip("fsdp1-state-dict", tmp_path / "full.pt")


def test_fsdp1_state_dict_type(tmp_path: Path) -> None:
    _file_round_trip("fsdp1-state-dict-type", tmp_path / "full.pt")


def test_fsdp1_state_dict_type_warns() -> None:
    def body(rank: int) -> None:
        model = load("fsdp1-shard")["shard"](plain(), Block)
        with pytest.warns(FutureWarning, match="being deprecated. Please use APIs, get_state_dict"):
            FSDP.set_state_dict_type(model, torch.distributed.fsdp.StateDictType.FULL_STATE_DICT)

    on_ranks(2, body)


def test_fsdp1_sharded_checkpoint(tmp_path: Path) -> None:
    ns, shard = load("fsdp1-sharded-checkpoint"), load("fsdp1-shard")["shard"]

    def body(rank: int) -> Any:
        model, optimizer = _trained(shard)
        ns["save"](model, optimizer, tmp_path)
        through = together(model, optimizer, range(2, 4))
        resumed = shard(plain(7), Block)
        fresh = adamw(resumed, lr=0.5)
        ns["load"](resumed, fresh, tmp_path)
        return through, together(resumed, fresh, range(2, 4))

    def with_fsdp2(rank: int) -> Any:
        model = plain(7)
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        optimizer = adamw(model, lr=0.5)
        ns["load"](model, optimizer, tmp_path)
        return together(model, optimizer, range(2, 4))

    losses, _ = alone()
    for through, again in on_ranks(2, body):
        assert again == through == pytest.approx(losses[2:], abs=1e-5)
    for losses_of_fsdp2 in on_ranks(4, with_fsdp2):
        assert losses_of_fsdp2 == pytest.approx(losses[2:], abs=1e-5)


def test_fsdp1_meta_init() -> None:
    ns = load("fsdp1-meta-init")

    def body(rank: int) -> Any:
        torch.manual_seed(5)
        model = ns["build"](Own, Block)
        start = values(model)
        offset = model.norm.offset.clone()
        return start, offset, together(model, adamw(model), range(3)), values(model)

    # The order of filling: one FSDP unit after the other, each from the outside in.
    torch.manual_seed(5)
    with torch.device("meta"):
        expected = Own()
    expected.to_empty(device="cpu")
    for layer in expected.layers:
        for module in (layer.norm, layer.up, layer.down):
            module.reset_parameters()
    for module in (expected.embed, expected.norm, expected.head):
        module.reset_parameters()
    start = {name: p.detach().clone() for name, p in expected.named_parameters()}
    optimizer = adamw(expected)
    losses = [step(expected, optimizer, *batch(number)) for number in range(3)]
    for got, offset, ours, after in on_ranks(2, body):
        assert same(got, start)
        assert torch.equal(offset, torch.arange(16) / 16)  # the buffer that no checkpoint has
        assert ours == pytest.approx(losses, abs=1e-5)
        assert close(after, dict(expected.named_parameters()))


def test_fsdp1_load_rank0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU FSDP1 refuses sync_module_states; without that one check the pattern does what it says over Gloo."""
    ns, path = load("fsdp1-load-rank0"), tmp_path / "weights.pt"
    torch.save(plain().state_dict(), path)

    def refused(rank: int) -> str:
        try:
            ns["build"](Own, Block, path)
        except ValueError as error:
            return str(error)
        return ""

    def body(rank: int) -> Any:
        _init_utils._check_module_states_for_sync_module_states = lambda states: None
        model = ns["build"](Own, Block, path)
        return values(model), model.norm.offset.clone(), together(model, adamw(model), range(4))

    for message in on_ranks(2, refused):
        assert "which requires them to be on GPU" in message
    losses, _ = alone()
    for start, offset, ours in on_ranks(2, body):
        assert same(start, {name: p.detach() for name, p in plain().named_parameters()})
        assert torch.equal(offset, torch.arange(16) / 16)
        assert ours == pytest.approx(losses, abs=1e-5)


def test_fsdp1_cpu_offload_needs_an_accelerator() -> None:
    ns = load("fsdp1-cpu-offload")

    def body(rank: int) -> str:
        model = ns["shard"](plain(), Block)
        try:
            step(model, adamw(model), *mine(0))
        except RuntimeError as error:
            return str(error)
        return ""

    for message in on_ranks(2, body):
        assert "Cannot access accelerator device when none is available" in message


class Generating(Own):
    def generate(self, ids: torch.Tensor) -> torch.Tensor:
        """One greedy token, computed without ``forward``."""
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))[:, -1].argmax(-1)


def test_fsdp1_evaluate() -> None:
    ns = load("fsdp1-evaluate")

    def loss_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    def body(rank: int) -> Any:
        torch.manual_seed(0)
        model = load("fsdp1-shard")["shard"](Generating(), Block)
        before = values(model)
        inputs, targets = batch(1)
        cut = 3 if rank == 0 else 1  # the last batches differ in size between the ranks
        rows = slice(0, cut) if rank == 0 else slice(3, 4)
        loss = ns["evaluate"](model, [mine(0), (inputs[rows], targets[rows])], loss_sum, "cpu")
        tokens = ns["generate"](model, batch(2)[0])
        try:
            model.module.generate(batch(2)[0])
            without = ""
        except RuntimeError as error:
            without = str(error)
        return float(loss), tokens, model.training, same(before, values(model)), bool(without)

    torch.manual_seed(0)
    model = Generating()
    everything = [torch.cat(parts) for parts in zip(batch(0), batch(1), strict=True)]
    expected = float(loss_fn(model(everything[0]), everything[1]).detach())
    tokens = model.generate(batch(2)[0])
    for loss, got, training, unchanged, fails in on_ranks(2, body):
        assert loss == pytest.approx(expected, abs=1e-5)
        assert torch.equal(got, tokens)
        assert training and unchanged
        assert fails  # the method alone finds shards


def test_fsdp1_compile() -> None:
    ns = load("fsdp1-compile")

    def body(rank: int) -> Any:
        model = ns["shard"](plain(), Block)
        optimizer = adamw(model)
        losses = together(model, optimizer, range(4))
        return losses, values(model), torch._dynamo.utils.counters["stats"]["unique_graphs"]

    losses, parameters = alone()
    for ours, after, graphs in on_ranks(2, body):
        assert ours == pytest.approx(losses, abs=1e-5)
        assert close(after, parameters)
        assert graphs > 0
