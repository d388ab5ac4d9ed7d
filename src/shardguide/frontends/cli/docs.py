"""``shardguide docs verify``: every claim against the PyTorch at hand."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.frontends.render.blocks import Block, Heading, Items, Pairs, Title
from shardguide.guidance.hints import Any

from . import output
from .parser import add_common, wants_json


def configure(parser: ArgumentParser) -> None:
    """What to do with the documentation."""
    parser.add_argument("action", choices=("verify",), help="verify: look every claim up in the installed PyTorch")
    add_common(parser)


def call(arguments: Namespace) -> int:
    """Status 1 when a claim that should hold for the release was not found again."""
    from shardguide.workflows.verify import verify

    record = verify(arguments.torch, arguments.site_packages)
    if wants_json(arguments):
        from shardguide.guidance.serialise import to_json

        sys.stdout.write(to_json(record))
    else:
        output.page(_view(record, arguments.verbose), arguments.format)
    return 1 if record["not_found"] else 0


def _view(record: dict[str, Any], verbose: bool) -> list[Block]:
    where = record["torch"]["path"] or "no PyTorch at hand"
    rows = (
        ("claims for this release", str(record["claims"]), ""),
        ("found again", str(record["found"]), "passed" if not record["not_found"] else "failed"),
        ("on documentation pages only", str(record["page_only"]), ""),
        ("not found", str(len(record["not_found"])), "failed" if record["not_found"] else ""),
    )
    out: list[Block] = [Title(f"Claims against PyTorch {record['torch']['version'] or '?'} ({where})"), Pairs(rows)]
    if record["not_found"]:
        out.extend([Heading("Not found"), Items(tuple(f"{one['id']}: {one['text']}" for one in record["not_found"]))])
    return out
