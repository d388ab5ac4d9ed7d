"""``shardguide approve ID``; ``reject`` shares it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.frontends.render.blocks import Text
from shardguide.notebook import commands

from . import desk, output
from .parser import add_common, wants_json


def configure(parser: ArgumentParser) -> None:
    """Which guidance, and why."""
    parser.add_argument("--anyway", action="store_true", help="approve although a check failed")
    add_mark(parser)


def add_mark(parser: ArgumentParser) -> None:
    """What ``approve`` and ``reject`` share."""
    parser.add_argument("id", help="of the guidance (its first digits suffice)")
    parser.add_argument("--note", default="", metavar="TEXT", help="kept with the decision")
    add_common(parser)


def mark(arguments: Namespace, approve: bool) -> int:
    """Keep the user's word on a guidance."""
    wrong: list[str] = []
    with desk.notebook(arguments) as notebook:
        if approve:
            record = commands.approve(notebook, arguments.id, arguments.note, arguments.anyway)
            wrong = [check["id"] for check in commands.failed(notebook.load(record["id"]).guidance)]
        else:
            record = commands.reject(notebook, arguments.id, arguments.note)
    if wants_json(arguments):
        output.as_json(record)
    else:
        despite = f", although a check failed ({', '.join(wrong)})" if wrong else ""
        output.page([Text(f"{record['state'].capitalize()}: {record['id']}{despite}.")], arguments.format)
    return 0


def call(arguments: Namespace) -> int:
    """Confirm."""
    return mark(arguments, approve=True)
