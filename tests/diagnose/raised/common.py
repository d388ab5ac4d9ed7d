"""What the cases share: how they are registered, a mesh, and fully_shard on it."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

CASES: dict[str, Callable[[bool], Any]] = {}
QUIET = ("fsdp2_view_output", "clip_empty_generator", "tp_plan_does_nothing")  # they warn and do not raise


def case(function: Callable[[bool], Any]) -> Callable[[bool], Any]:
    CASES[function.__name__] = function
    return function


def mesh(shape: tuple[int, ...] = (2,), names: tuple[str, ...] | None = ("dp",)) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def shard(module: Any, **options: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(module, **{"mesh": mesh(), **options})


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 8)))


def outcome(name: str, fixed: bool) -> str:
    """What a case prints: the warning or the exception as a log has it; "" when nothing went wrong."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            CASES[name](fixed)
        except BaseException:
            return traceback.format_exc()
    if name in QUIET:
        return "".join(f"train.py:1: {one.category.__name__}: {one.message}\n" for one in caught)
    return ""
