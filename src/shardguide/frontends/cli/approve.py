"""``shardguide approve ID``; ``reject`` shares it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.frontends.render.blocks import Text
from shardguide.notebook import commands

from . import desk, output
from .parser import add_common, wants_json


def configure(parser: ArgumentParser) -> None:
    """Which guidance, and why."""
    parser.add_argument("id", help="of the guidance (its first digits suffice)")
    parser.add_argument("--note", default="", metavar="TEXT", help="kept with the decision")
    add_common(parser)


def mark(arguments: Namespace, approve: bool) -> int:
    """Keep the user's word on a guidance."""
    with desk.notebook(arguments) as notebook:
        record = (commands.approve if approve else commands.reject)(notebook, arguments.id, arguments.note)
    if wants_json(arguments):
        from shardguide.guidance.serialise import to_json

        sys.stdout.write(to_json(record))
    else:
        output.page([Text(f"{record['state'].capitalize()}: {record['id']}.")], arguments.format)
    return 0


def call(arguments: Namespace) -> int:
    """Confirm."""
    return mark(arguments, approve=True)
