"""``shardguide reject ID``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .approve import add_mark, mark


def configure(parser: ArgumentParser) -> None:
    """Which guidance, and why."""
    add_mark(parser)


def call(arguments: Namespace) -> int:
    """Turn down."""
    return mark(arguments, approve=False)
