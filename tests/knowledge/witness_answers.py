"""What the witnesses of process groups and DDP share: how calls answer, and models of one weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


def said(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """How a call failed: "ValueError: its message", or "" when it did not."""
    try:
        call(*args, **kwargs)
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def warned(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """The warnings of a call: "FutureWarning: message"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [f"{item.category.__name__}: {item.message}" for item in caught]


def all_say(texts: Sequence[str], *words: str) -> bool:
    """Every rank answered with these words."""
    return all(word in text for text in texts for word in words) and bool(texts)


def of(ranks: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """One fact of every rank, in rank order."""
    return [rank[name] for rank in ranks]


def weight(value: float = 1.0) -> nn.Linear:
    """One weight, no bias: the gradient of its output's sum is its input."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, value)
    return layer


def number(rank: int) -> torch.Tensor:
    """The input of a rank: its rank plus one."""
    return torch.tensor([[rank + 1.0]])


def gradient(model: nn.Module, loss: torch.Tensor) -> float:
    """The gradient of the first weight."""
    model.zero_grad()
    loss.backward()
    return next(model.parameters()).grad.item()


class Two(nn.Module):
    """Two weights, of which a forward may use one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = weight(), weight()

    def forward(self, x: torch.Tensor, use: tuple[str, ...] = ("a",)) -> Any:
        """The sum of what the named weights give."""
        return sum(getattr(self, name)(x) for name in use)
