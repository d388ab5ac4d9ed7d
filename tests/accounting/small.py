"""A small model that really runs on the CPU: odd sizes, biases, norms, a buffer, a tied pair."""

from __future__ import annotations

from typing import Any

UNITS = [(("blocks.0",), "block"), (("blocks.1",), "block"), (("blocks.2",), "block")]
VOCABULARY, WIDTH, INNER = 19, 12, 28


def make(tied: bool = True, width: int = WIDTH, inner: int = INNER) -> Any:
    """Embedding, three blocks with a residual, norm, output projection."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, inner)
            self.down = nn.Linear(inner, width, bias=False)
            self.register_buffer("scale", torch.ones(3, dtype=torch.float32))

        def forward(self, x: Any) -> Any:
            return x + self.down(self.up(self.norm(x)).relu())

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, width)
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, VOCABULARY, bias=False)
            if tied:
                self.head.weight = self.embed.weight

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    return Small()


def step(module: Any) -> None:
    """One forward and backward."""
    import torch

    module(torch.arange(10).view(2, 5)).float().square().mean().backward()
