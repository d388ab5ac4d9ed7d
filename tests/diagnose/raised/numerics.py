"""Activation checkpointing, loss scaling and gradient clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .common import case, x


@case
def ac_different_number(fixed: bool) -> None:
    calls: list[int] = []

    def region(given: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return given.exp().sin() if fixed or len(calls) == 1 else given * 1

    torch.utils.checkpoint.checkpoint(region, x().requires_grad_(), use_reentrant=False).sum().backward()


def _metadata(fixed: bool, change: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor) -> None:
    calls: list[int] = []

    def region(given: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        used = given if fixed or len(calls) == 1 else change(given)
        return used.exp().sum()

    torch.utils.checkpoint.checkpoint(region, start.requires_grad_(), use_reentrant=False).backward()


@case
def fsdp2_fp32_buffers_in_ac(fixed: bool) -> None:
    _metadata(fixed, lambda given: given.float(), torch.randn(4, 8, dtype=torch.bfloat16))


@case
def ac_context_manager_exited(fixed: bool) -> None:
    _metadata(fixed, lambda given: given[:, :4], torch.randn(4, 8, dtype=torch.bfloat16))


@case
def ac_nonreentrant_metadata_check(fixed: bool) -> None:
    _metadata(fixed, lambda given: given.repeat(4, 1), torch.randn(4, 8, dtype=torch.bfloat16))


@case
def ac_unpacked_twice(fixed: bool) -> None:
    out = torch.utils.checkpoint.checkpoint(lambda given: given.exp().sin(), x().requires_grad_(), use_reentrant=False)
    out.sum().backward(retain_graph=not fixed)
    if not fixed:

        class Reads(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(given)
                return given.clone()

            @staticmethod
            def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
                return grad * ctx.saved_tensors[0] * ctx.saved_tensors[0]

        torch.utils.checkpoint.checkpoint(Reads.apply, x().requires_grad_(), use_reentrant=False).sum().backward()


@case
def ac_reentrant_no_grad(fixed: bool) -> None:
    def region(given: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return given.exp() if fixed else other.exp()

    given = x().requires_grad_()
    out = torch.utils.checkpoint.checkpoint(region, given, x(), use_reentrant=True)
    out.sum().backward()


@case
def ac_reentrant_limits(fixed: bool) -> None:
    given = x().requires_grad_()
    out = torch.utils.checkpoint.checkpoint(lambda a: a.exp(), given, use_reentrant=not fixed)
    torch.autograd.grad(out.sum(), given)


@case
def ac_selective_arguments(fixed: bool) -> None:
    op = torch.ops.aten.mm.default if fixed else torch.ops.aten.mm
    torch.utils.checkpoint.create_selective_checkpoint_contexts([op])


@case
def ac_arguments(fixed: bool) -> None:
    check = "default" if fixed else "strict"
    torch.utils.checkpoint.checkpoint(lambda a: a.exp(), x(), use_reentrant=False, determinism_check=check)


def _scaled(dtype: torch.dtype = torch.float32) -> tuple[Any, Any, torch.Tensor]:
    weight = nn.Parameter(torch.ones(2, dtype=dtype))
    return torch.amp.GradScaler("cpu"), torch.optim.SGD([weight], lr=0.1), weight.sum()


@case
def scaler_unscale_fp16(fixed: bool) -> None:
    scaler, optimizer, loss = _scaled(torch.float32 if fixed else torch.float16)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)


@case
def scaler_order(fixed: bool) -> None:
    scaler, optimizer, loss = _scaled()
    scaler.scale(loss).backward()
    for _ in range(1 if fixed else 2):
        scaler.unscale_(optimizer)


@case
def scaler_never_scaled(fixed: bool) -> None:
    scaler, optimizer, loss = _scaled()
    (scaler.scale(loss) if fixed else loss).backward()
    scaler.step(optimizer)
    scaler.update()


@case
def sharded_scaler_no_local_grads(fixed: bool) -> None:
    scaler, optimizer, loss = _scaled()
    loss = scaler.scale(loss)
    if fixed:
        loss.backward()
    scaler.step(optimizer)


@case
def scaler_arguments(fixed: bool) -> None:
    torch.amp.GradScaler("cpu", growth_factor=2.0 if fixed else 0.5)


@case
def scaler_state(fixed: bool) -> None:
    states = torch.amp.GradScaler("cpu", enabled=fixed).state_dict()
    torch.amp.GradScaler("cpu").load_state_dict(states)


@case
def clip_norm_nonfinite(fixed: bool) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, 1.0 if fixed else float("nan")])
    torch.nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


@case
def clip_empty_generator(fixed: bool) -> None:
    parameters = nn.Linear(2, 2).parameters()
    if not fixed:
        list(parameters)
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)


@case
def clip_foreach(fixed: bool) -> None:
    weight = nn.Parameter(torch.ones(2, device="meta"))
    weight.grad = torch.ones(2, device="meta")
    torch.nn.utils.clip_grad_norm_([weight], 1.0, foreach=None if fixed else True)
