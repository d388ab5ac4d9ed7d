"""``shardguide reject ID``."""

from __future__ import annotations

from argparse import Namespace

from .approve import configure, mark

__all__ = ["call", "configure"]


def call(arguments: Namespace) -> int:
    """Turn down."""
    return mark(arguments, approve=False)
