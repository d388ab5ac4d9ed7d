"""DTensor, mesh and tensor-parallel patterns on real ranks; what trains is compared with one process on the global batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402

from tests.patterns.load import load  # noqa: E402
from tests.snippets import gloo  # noqa: E402

pytestmark = pytest.mark.torch
VOCABULARY, WIDTH, HIDDEN, HEADS, LENGTH, ROWS, STEPS = 32, 16, 24, 4, 8, 4, 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q, k, v = (part(x).view(b, s, -1, WIDTH // HEADS).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(b, s, -1))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(WIDTH), Attention()
        self.mlp_norm, self.mlp = nn.RMSNorm(WIDTH), MLP()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def plain(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return ids[:, :-1], ids[:, 1:]


def train(
    model: nn.Module,
    *,
    part: tuple[int, int] = (0, 1),
    clip: Callable[[nn.Module], Any] | None = None,
) -> tuple[list[float], list[float]]:
    """Losses of this process's part of the global batch, and gradient norms, of SGD steps with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses, norms = [], []
    for number in range(STEPS):
        ids, targets = (rows.chunk(part[1])[part[0]] for rows in batch(number))
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        if clip is not None:
            norms.append(float(clip(model)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, norms


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for name, p in model.named_parameters()
    }


def close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], atol: float = 1e-5) -> bool:
    return left.keys() == right.keys() and all(
        torch.allclose(left[name], right[name], atol=atol, rtol=1e-4) for name in left
    )


def moved(after: dict[str, torch.Tensor]) -> bool:
    """Training changed every parameter by far more than the tolerance: equality means something."""
    before = values(plain())
    return all(float((after[name] - before[name]).abs().max()) > 1e-3 for name in before)


def on_ranks(world: int, body: Callable[[int], Any]) -> list[Any]:
    def with_group(rank: int) -> Any:
        gloo.init()
        return body(rank)

    return gloo.run(world, with_group)


def test_dtensor_basics() -> None:
    ns = load("dtensor-basics")
    whole = torch.arange(12.0).reshape(4, 3)

    def body(rank: int) -> Any:
        mesh = init_device_mesh("cpu", (2,))
        with CommDebugMode() as silent:
            rows = ns["split_rows"](whole + 100 * rank, mesh)  # only the first rank's values count
            mine = ns["mine"](rows)
            built = ns["from_parts"](mine.clone(), mesh)
        with CommDebugMode() as gathering:
            everywhere = ns["everywhere"](rows)
        with CommDebugMode() as exchange:
            columns = ns["columns_instead"](rows)
        shared = mine.data_ptr() == rows.to_local().data_ptr()
        return {
            "shape": tuple(rows.shape),
            "mine": mine,
            "shared": shared,
            "whole": ns["whole"](rows),
            "columns": (columns.placements, columns.to_local()),
            "everywhere": (everywhere.placements, everywhere.to_local()),
            "built": ns["whole"](built),
            "sum": ns["sum_of_all"](torch.full((2,), float(rank + 1)), mesh),
            "counts": [mode.get_total_counts() for mode in (silent, gathering, exchange)],
            "gathered": {str(op) for op in gathering.get_comm_counts()},
        }

    for rank, got in enumerate(on_ranks(2, body)):
        assert got["shape"] == (4, 3) and got["shared"]
        assert torch.equal(got["mine"], whole[2 * rank : 2 * rank + 2])
        assert torch.equal(got["whole"], whole) and torch.equal(got["built"], whole)
        assert got["columns"][0] == (Shard(1),) and torch.equal(got["columns"][1], whole.chunk(2, dim=1)[rank])
        assert got["everywhere"][0] == (Replicate(),) and torch.equal(got["everywhere"][1], whole)
        assert torch.equal(got["sum"], torch.tensor([3.0, 3.0]))
        assert got["counts"][1:] == [1, 1] and got["gathered"] == {"c10d_functional.all_gather_into_tensor"}


def test_device_mesh() -> None:
    ns = load("device-mesh")

    def body(rank: int) -> Any:
        mesh = ns["two_levels"](2)
        near = ns["within_node"](mesh)
        mean = ns["average_between_nodes"](torch.tensor([float(rank)]), mesh)
        groups = [dist.get_process_group_ranks(mesh[name].get_group()) for name in ("replicate", "shard")]
        return mesh.shape, near.mesh.tolist(), float(mean), ns["where_am_i"](mesh), groups

    got = on_ranks(4, body)
    assert [row[0] for row in got] == [(2, 2)] * 4
    assert [row[1] for row in got] == [[0, 1], [0, 1], [2, 3], [2, 3]]  # a row is what torchrun numbers on one node
    assert [row[2] for row in got] == [1.0, 2.0, 1.0, 2.0]  # (0 + 2) / 2 and (1 + 3) / 2
    assert [row[3] for row in got] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row[4] for row in got] == [[[0, 2], [0, 1]], [[1, 3], [0, 1]], [[0, 2], [2, 3]], [[1, 3], [2, 3]]]


def test_device_mesh_three_dims() -> None:
    ns = load("device-mesh-three-dims")

    def body(rank: int) -> Any:
        mesh = ns["build"](1, 2, 2)
        data = ns["data_rank"](mesh)
        batch_of_group = torch.tensor([data[0]])
        checks = [ns["same_on_tensor_parallel_ranks"](t, mesh) for t in (batch_of_group, torch.tensor([rank]))]
        groups = ns["groups_of_this_rank"](mesh)
        return (
            ns["for_fsdp"](mesh).mesh.tolist(),
            ns["for_tensor_parallelism"](mesh).mesh.tolist(),
            data,
            checks,
            groups,
        )

    got = on_ranks(4, body)
    assert [row[0] for row in got] == [[[0, 2]], [[1, 3]], [[0, 2]], [[1, 3]]]
    assert [row[1] for row in got] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [row[2] for row in got] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert got[1][4] == {"replicate": [1], "shard": [1, 3], "tp": [0, 1]}
    # The first rank of a group is compared with itself; the second one sees that "rank" differs.
    assert [row[3] for row in got] == [[True, True], [True, False], [True, True], [True, False]]


def test_tp_mlp() -> None:
    ns = load("tp-mlp")
    x, wanted = (torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(i)) for i in (1, 2))

    def steps(mlp: nn.Module) -> list[float]:
        optimizer = torch.optim.SGD(mlp.parameters(), lr=0.5, momentum=0.9)
        losses = []
        for _ in range(STEPS):
            loss = F.mse_loss(mlp(x), wanted)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return losses

    def fresh(seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return MLP()

    def body(rank: int) -> Any:
        mlp = ns["split"](
            fresh(seed=rank), init_device_mesh("cpu", (2,))
        )  # other weights on rank 1: the first rank's count
        local = {name: tuple(p.to_local().shape) for name, p in mlp.named_parameters()}
        with CommDebugMode() as forward:
            out = mlp(x)
        return steps(mlp), values(mlp), local, type(out), {str(k): n for k, n in forward.get_comm_counts().items()}

    reference = fresh()
    losses = steps(reference)
    assert losses[-1] < losses[0] - 0.05
    for got, parameters, local, kind, communication in on_ranks(2, body):
        assert got == pytest.approx(losses, abs=1e-5)
        assert close(parameters, values(reference))
        assert local == {"gate.weight": (12, 16), "up.weight": (12, 16), "down.weight": (16, 12)}
        assert not issubclass(kind, DTensor)
        assert communication == {"c10d_functional.all_reduce": 1}


def test_tp_transformer_block() -> None:
    ns = load("tp-transformer-block")

    def body(rank: int) -> Any:
        model = ns["split"](plain(), init_device_mesh("cpu", (2,)))
        lengths = []
        hook = model.layers[0].register_forward_hook(lambda _m, args, out: lengths.append(out.shape[1]))
        with CommDebugMode() as forward:
            model(batch(0)[0])
        hook.remove()
        losses, _ = train(model)
        return losses, values(model), lengths, {str(k): n for k, n in forward.get_comm_counts().items()}

    reference = plain()
    losses, _ = train(reference)
    assert moved(values(reference))
    for got, parameters, lengths, communication in on_ranks(2, body):
        assert got == pytest.approx(losses, abs=1e-5)
        assert close(parameters, values(reference))
        assert lengths == [LENGTH // 2]  # between the layers each rank has half of the sequence
        # Per layer two gathers and two reduce-scatters; one reduce-scatter after the embedding, two gathers at the head.
        assert communication == {
            "c10d_functional.all_gather_into_tensor": 6,
            "c10d_functional.reduce_scatter_tensor": 5,
        }


def _sharded(ns: dict[str, Any]) -> tuple[nn.Module, Any]:
    mesh = ns["build_mesh"](2)
    return ns["shard"](plain(), mesh), mesh


def test_tp_fsdp() -> None:
    ns = load("tp-fsdp")

    def body(rank: int) -> Any:
        model, mesh = _sharded(ns)
        local = tuple(model.layers[0].mlp.up.weight.to_local().shape)
        rows = list(ns["sampler"](range(8), mesh))
        losses, _ = train(model, part=(mesh["dp"].get_local_rank(), 2))
        wrong = plain()
        ns["fully_shard"](wrong.layers[0], mesh=mesh["dp"])
        try:
            load("tp-mlp")["split"](wrong.layers[0].mlp, mesh["tp"])
            refused = ""
        except ValueError as error:
            refused = str(error)
        return losses, values(model), local, rows, refused

    reference = plain()
    losses, _ = train(reference)
    got = on_ranks(4, body)
    for rank, (_, parameters, local, _, refused) in enumerate(got):
        assert close(parameters, values(reference)), rank
        assert local == (HIDDEN // 2 // 2, WIDTH)  # split by tensor parallelism, and once more by FSDP
        assert "Cannot distribute a DTensor with device mesh" in refused  # the other order
    assert got[0][3] == got[1][3] != got[2][3] == got[3][3]  # one batch per tensor-parallel group
    assert got[0][0] == got[1][0] and got[2][0] == got[3][0]
    mean = [(a + b) / 2 for a, b in zip(got[0][0], got[2][0], strict=True)]
    assert mean == pytest.approx(losses, abs=1e-5)


def test_tp_loss_parallel() -> None:
    ns = load("tp-loss-parallel")

    def body(rank: int) -> Any:
        model = ns["split_head"](plain(), init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        logits = model(batch(0)[0])
        losses = [float(ns["step"](model, optimizer, *batch(number))) for number in range(STEPS)]
        return losses, values(model), tuple(logits.to_local().shape), logits.placements

    reference = plain()
    losses, _ = train(reference)
    for got, parameters, local, placements in on_ranks(2, body):
        assert got == pytest.approx(losses, abs=1e-5)
        assert close(parameters, values(reference))
        assert local == (ROWS, LENGTH, VOCABULARY // 2) and placements == (Shard(2),)


def test_tp_clip() -> None:
    ns, model_of = load("tp-clip"), load("tp-fsdp")
    limit = 0.5

    def body(rank: int) -> Any:
        model, mesh = _sharded(model_of)
        part = (mesh["dp"].get_local_rank(), 2)
        losses, norms = train(model, part=part, clip=lambda m: ns["clip"](m, limit))
        other, _ = _sharded(model_of)
        F.cross_entropy(other(batch(0)[0]).flatten(0, 1), batch(0)[1].flatten()).backward()
        try:
            torch.nn.utils.clip_grad_norm_(other.parameters(), limit)
            refused = ""
        except RuntimeError as error:
            refused = str(error)
        return losses, norms, values(model), len({p.device_mesh for p in model.parameters()}), refused

    reference = plain()
    _, norms = train(reference, clip=lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), limit))
    assert min(norms) > limit  # every step is really clipped
    for _, got, parameters, meshes, refused in on_ranks(4, body):
        assert got == pytest.approx(norms, rel=1e-5)
        assert close(parameters, values(reference))
        assert meshes == 2
        assert "must have the same mesh" in refused  # what the plain function does
