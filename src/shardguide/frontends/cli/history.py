"""``shardguide history [ID]``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.frontends.conduct import project
from shardguide.frontends.render.blocks import Block, Table, Text
from shardguide.notebook import commands

from . import desk, output
from .parser import add_common, wants_json


def configure(parser: ArgumentParser) -> None:
    """Which guidance."""
    parser.add_argument("id", nargs="?", help="of a guidance (its first digits suffice); without it, the list")
    parser.add_argument("--everywhere", action="store_true", help="of all projects, not only this folder's")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many lines (default 20)")
    add_common(parser)


def call(arguments: Namespace) -> int:
    """List earlier guidance, or show one as it was given."""
    with desk.notebook(arguments) as notebook:
        if arguments.id:
            record = commands.recall(notebook, arguments.id)
            output.show(record, arguments)
            return 0
        record = commands.history(notebook, None if arguments.everywhere else project(), max(1, arguments.limit))
    if wants_json(arguments):
        output.as_json(record)
        return 0
    rows = tuple(
        (e["id"], e["workflow"], e["torch"] or "?", e["status"], e["state"], e["at"][:16].replace("T", " "))
        for e in record["guidance"]
    )
    blocks: list[Block] = (
        [Table(("id", "workflow", "torch", "status", "state", "last asked (UTC)"), rows)]
        if rows
        else [Text("No guidance yet in this project.")]
    )
    output.page(blocks, arguments.format)
    return 0
