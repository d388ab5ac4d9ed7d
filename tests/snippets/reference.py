"""What training without any parallelism gives: the right value for every snippet.

One process, plain optimizer, the data of all ranks: their mean loss is differentiated. Mixed precision is done by hand, as the
documentation of MixedPrecisionPolicy describes it: a copy of the parameters in ``param_dtype`` computes, the gradients are
averaged in ``reduce_dtype``, the optimizer works on the originals.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from shardguide.knowledge.snippets import TrainingSpec

Batch = dict[str, torch.Tensor]


def optimizers(
    model: nn.Module, spec: TrainingSpec, rate: float, blocks: tuple[str, ...]
) -> list[torch.optim.Optimizer]:
    """The optimizer of that name over ordinary parameters."""
    parameters = list(model.parameters())
    simple: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "adamw": lambda: torch.optim.AdamW(parameters, lr=rate),
        "adam": lambda: torch.optim.Adam(parameters, lr=rate),
        "sgd": lambda: torch.optim.SGD(parameters, lr=rate),
        "sgd_momentum": lambda: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
        "rmsprop": lambda: torch.optim.RMSprop(parameters, lr=rate),
        "adagrad": lambda: torch.optim.Adagrad(parameters, lr=rate),
    }
    if spec.optimizer in simple:
        return [simple[spec.optimizer]()]
    named = dict(model.named_parameters())
    matrices = {
        n for n, p in named.items() if p.ndim == 2 and (not blocks or n.startswith(tuple(f"{b}." for b in blocks)))
    }
    return [
        torch.optim.Muon([p for n, p in named.items() if n in matrices], lr=rate),
        torch.optim.AdamW([p for n, p in named.items() if n not in matrices], lr=rate),
    ]


def train(
    model: nn.Module,
    spec: TrainingSpec,
    data: list[list[list[Batch]]],
    loss_of: Callable[[nn.Module, Batch], torch.Tensor],
    rate: float,
    *,
    autocast: bool = False,
    frozen: tuple[str, ...] = (),
) -> list[tuple[list[float], float]]:
    """For every step the loss of each rank's data and the gradient norm (before clipping; 0.0 without clipping)."""
    dtypes = {"": None, "bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    compute, reduce = dtypes[spec.mp_param], dtypes[spec.mp_reduce]
    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in frozen):
            parameter.requires_grad_(False)
    model.train()
    blocks = tuple(sorted({unit.modules[0].rpartition(".")[0] for unit in spec.units if unit.role == "block"}))
    steppers = optimizers(model, spec, rate, blocks)
    scaler = torch.amp.GradScaler("cpu") if spec.mp_param == "float16" else None
    history: list[tuple[list[float], float]] = []
    for step in data:
        losses, gradients = [], []
        for rank in step:
            worker = model
            if compute is not None and not autocast:
                worker = copy.deepcopy(model)
                for parameter in worker.parameters():
                    parameter.data = parameter.data.to(compute)
            worker.zero_grad()
            total = 0.0
            sums: list[Any] = []
            for micro in rank:
                context = torch.autocast("cpu", dtype=compute) if autocast and compute is not None else nullcontext()
                with context:
                    loss = loss_of(worker, micro) / len(rank)
                (scaler.scale(loss) if scaler else loss).backward()
                total += loss.item()
                parts = [None if p.grad is None else p.grad.to(reduce or p.grad.dtype) for p in worker.parameters()]
                sums = (
                    parts
                    if not sums
                    else [b if a is None else a if b is None else a + b for a, b in zip(sums, parts, strict=True)]
                )
                worker.zero_grad()
            losses.append(total)
            gradients.append(sums)
        for parameter, *parts in zip(model.parameters(), *gradients, strict=True):
            present = [part.float() for part in parts if part is not None]
            parameter.grad = (sum(present) / len(step)).to(parameter.dtype) if present else None
        norm = 0.0
        if spec.clip_norm is not None:
            for stepper in steppers if scaler else ():
                scaler.unscale_(stepper)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip_norm).item()
        for stepper in steppers:
            if scaler:
                scaler.step(stepper)
            else:
                stepper.step()
        if scaler:
            scaler.update()
        model.zero_grad()
        history.append((losses, norm))
    return history
