"""Which view shows which workflow's record."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from shardguide.guidance.hints import Any

from .blocks import Block


def view_of(workflow: str) -> Callable[[dict[str, Any], bool], list[Block]]:
    """The view of a workflow, imported when it is needed."""
    view: Callable[[dict[str, Any], bool], list[Block]] = import_module(f"{__package__}.{workflow}_view").view
    return view
