"""Small models of each kind of architecture, and training without any parallelism as the right value for the patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

VOCABULARY, WIDTH, LENGTH = 32, 16, 6
# fp32: the same sums in another order (over ranks, in chunks). Measured: parameters below 5e-7, losses near 2 below 2e-6.
CLOSE: dict[str, float] = {"rtol": 1e-5, "atol": 2e-6}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # the keys' bias has a gradient of zero: noise to Adam
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """``tied``: the head has the embedding's tensor. ``score`` goes around forward."""

    def __init__(self, layers: int = 2, tied: bool = False, block: Callable[[], nn.Module] = Block) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def score(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed.weight[ids]  # the parameter itself, not the module: nothing gathers it but the root's hooks
        for layer in self.layers:
            x = layer(x)
        return x.mean(dim=(1, 2))


class Experts(nn.Module):
    """``count`` experts in one tensor per projection; the router takes the best one for each token."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, count)
        self.up = nn.Parameter(torch.randn(count, WIDTH, 24) * 0.2)
        self.down = nn.Parameter(torch.randn(count, 24, WIDTH) * 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.router(x).softmax(dim=-1)
        every = torch.einsum("btek,ekd->bted", torch.einsum("btd,edk->btek", x, self.up).relu(), self.down)
        return x + (every * (weights * (weights == weights.amax(-1, keepdim=True)))[..., None]).sum(dim=2)


class Switch(nn.Module):
    """Experts as modules of their own: a batch goes to one of them, by its first number."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return x + self.experts[which](x)


class Switched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Switch() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, int(ids[0, 0]) % 2)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), norm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.norm(self.conv(x)))


class Vision(nn.Module):
    """Four stages of two blocks, twice the channels from stage to stage."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 2, 1)
        self.downs = nn.ModuleList(nn.Conv2d(2 << i, 4 << i, 2, stride=2) for i in range(3))
        self.stages = nn.ModuleList(nn.Sequential(Residual(2 << i, norm), Residual(2 << i, norm)) for i in range(4))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i < 3:
                x = self.downs[i](x)
        return self.head(x.mean(dim=(2, 3)))


class Tower(nn.Module):
    def __init__(self, size: int, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.inward = nn.Linear(size, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x)
        for block in self.blocks:
            x = block(x)
        return x.mean(dim=1)


class Feed(nn.Module):
    """The second tower's block, of another class."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.up(x))


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = Tower(8, Feed), Tower(5, Block)
        self.logit_scale = nn.Parameter(torch.tensor(1.5))  # a scalar, as in CLIP

    def encode_image(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.image(x), dim=-1) * self.logit_scale

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return self.logit_scale * F.normalize(self.image(image), dim=-1) @ F.normalize(self.text(text), dim=-1).T


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """The same weights in every process."""
    torch.manual_seed(0)
    return build()


def ids(*shape: int, seed: int = 1) -> torch.Tensor:
    """Token ids, the same in every process."""
    return torch.randint(0, VOCABULARY, (*shape, LENGTH), generator=torch.Generator().manual_seed(seed))


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    """Normal numbers, the same in every process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def next_token(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the next token."""
    logits = model(batch)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())


def token_losses(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """The sum over the samples of each sample's mean loss."""
    logits = model(batch)[:, :-1].transpose(1, 2)
    return F.cross_entropy(logits, batch[:, 1:], reduction="none").mean(dim=1).sum()


def mesh(world: int) -> Any:
    """One dimension over all ranks."""
    return init_device_mesh("cpu", (world,))


def sharded(model: Any, world: int) -> Any:
    """Layers, then root."""
    device_mesh = mesh(world)
    for layer in model.layers:
        fully_shard(layer, mesh=device_mesh)
    return fully_shard(model, mesh=device_mesh)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    """SGD: its step is linear in the gradient, so that rounding is not blown up as Adam does it near zero."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)


class Trained(NamedTuple):
    """What a training left."""

    losses: list[float]
    parameters: dict[str, torch.Tensor]  # whole


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter as one plain tensor; a collective where they are sharded."""
    buffers = {name for name, _ in model.named_buffers()}
    return {
        name: (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()
        for name, tensor in model.state_dict().items()
        if name not in buffers
    }


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Any],
    loss_fn: Callable[[Any, Any], torch.Tensor] = next_token,
) -> Trained:
    """The plainest loop: what a rank runs, or the reference with all data."""
    losses = []
    for batch in batches:
        loss = loss_fn(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Trained(losses, whole(model))


def over_ranks(loss_fn: Callable[[Any, Any], torch.Tensor]) -> Callable[[Any, Any], torch.Tensor]:
    """The mean of the ranks' losses, for one process that has the batches of all of them."""
    return lambda model, ranks: torch.stack([loss_fn(model, batch) for batch in ranks]).mean()


def reference(
    model: nn.Module,
    batches: Sequence[Sequence[Any]],  # [rank][step]
    loss_fn: Callable[[Any, Any], torch.Tensor] = next_token,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = momentum,
) -> Trained:
    """One process, one plain model, the data of all ranks."""
    return train(model, optimizer(model), list(zip(*batches, strict=True)), over_ranks(loss_fn))


def same(ranks: Sequence[Trained], right: Trained, **limits: float) -> None:
    """Every rank has the reference's parameters, and the mean of the ranks' losses is the reference's in each step."""
    limits = limits or CLOSE
    losses = torch.tensor([rank.losses for rank in ranks]).mean(dim=0)
    torch.testing.assert_close(losses, torch.tensor(right.losses), **limits)
    for rank in ranks:
        assert rank.parameters.keys() == right.parameters.keys()
        for name, tensor in right.parameters.items():
            torch.testing.assert_close(
                rank.parameters[name], tensor, **limits, msg=lambda text, name=name: f"{name}: {text}"
            )
