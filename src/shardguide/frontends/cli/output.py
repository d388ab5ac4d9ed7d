"""Printing a record: JSON, Markdown, plain text for pipes, colour for a terminal."""

from __future__ import annotations

import sys
from argparse import Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from .parser import wants_json

if TYPE_CHECKING:
    from shardguide.frontends.render.blocks import Block

STATUS = {"complete": 0, "partial": 0, "needs_answers": 3}


def show(record: dict[str, Any], arguments: Namespace) -> int:
    """Print ``record`` as the arguments ask for; returns the exit status that it stands for."""
    if wants_json(arguments):
        as_json(record)
    else:
        from shardguide.frontends.render.views import view_of

        blocks = view_of(record["workflow"])(record, arguments.verbose)
        if "earlier" in record:
            from shardguide.frontends import earlier

            blocks = [*blocks, *earlier.page(record["earlier"])]
        page(blocks, arguments.format)
    return STATUS.get(record.get("status", "complete"), 0)


def as_json(record: dict[str, Any]) -> None:
    """Print an object as JSON, and nothing else."""
    from shardguide.guidance.serialise import to_json

    text = to_json(record)
    if not text.isascii() or "\x7f" in text:
        from shardguide.frontends.render.safe import json_text

        text = json_text(text)
    sys.stdout.write(text)


def page(blocks: list[Block], form: str = "text") -> None:
    """Print blocks in the form that fits where they go."""
    if form == "md":
        from shardguide.frontends.render.markdown import render as markdown

        sys.stdout.write(markdown(blocks))
    elif sys.stdout.isatty():
        from shardguide.frontends.render.terminal import show as terminal

        terminal(blocks, sys.stdout)
    else:
        from shardguide.frontends.render.plain import render as plain

        sys.stdout.write(plain(blocks))
