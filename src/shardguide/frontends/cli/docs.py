"""``shardguide docs``: a name of the API, what changed between releases, every claim against the PyTorch at hand."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace

from shardguide.frontends.render.blocks import Block, Heading, Items, Pairs, Title
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

from . import output
from .parser import add_common, wants_json

EPILOG = """what there is to read:
  docs api NAME         how NAME is called, what changed from release to release, where it is in your PyTorch
  docs changes A B      what changed between two releases for FSDP, DDP, DTensor and DCP
  docs verify           every claim, looked up in your PyTorch; status 1 if one is not found

examples:
  shardguide docs api fully_shard --torch 2.6
  shardguide docs api FSDPModule.reshard
  shardguide docs api TORCH_NCCL_ASYNC_ERROR_HANDLING
  shardguide docs api --nproc-per-node
  shardguide docs changes 2.11 2.15"""


def configure(parser: ArgumentParser) -> None:
    """What to look up."""
    parser.epilog = EPILOG
    parser.usage = "%(prog)s {api NAME | changes A B | verify} [options]"
    # Options may stand between the action and its names, whose number only the action knows.
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
    parser.add_argument("action", choices=("api", "changes", "verify"), help="what to do; see below")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="api: a name, an option of torchrun or a variable; changes: two releases",
    )
    add_common(parser)
    from shardguide.knowledge import api

    for option in api.options():  # torchrun's, so that one can be named as it is written
        spellings = dict.fromkeys((option, option.replace("-", "_").replace("__", "--", 1)))
        parser.add_argument(*spellings, dest="options", action="append_const", const=option, help=SUPPRESS)


def call(arguments: Namespace) -> int:
    """Status 1 when a claim that should hold for the release was not found again."""
    if arguments.action == "api":
        return _api(arguments)
    if arguments.action == "changes":
        return _changes(arguments)
    if arguments.names or arguments.options:
        raise UnusableInput("docs verify takes no names; it looks every claim up.")
    return _verify(arguments)


def _api(arguments: Namespace) -> int:
    from shardguide.workflows.reference import name

    names = [*arguments.names, *(arguments.options or ())]
    if len(names) != 1:
        raise UnusableInput("docs api needs one name, for example: shardguide docs api fully_shard.")
    record = name(names[0], arguments.torch, arguments.site_packages)
    if wants_json(arguments):
        _json(record)
    else:
        from shardguide.frontends.render.reference_view import name_page

        output.page(name_page(record, arguments.verbose), arguments.format)
    return 0


def _changes(arguments: Namespace) -> int:
    from shardguide.workflows.changes import changes

    if len(arguments.names) != 2 or arguments.options:
        raise UnusableInput("docs changes needs two releases, for example: shardguide docs changes 2.11 2.15.")
    record = changes(*arguments.names)
    if wants_json(arguments):
        _json(record)
    else:
        from shardguide.frontends.render.reference_view import changes_page

        output.page(changes_page(record, arguments.verbose), arguments.format)
    return 0


def _json(record: dict[str, Any]) -> None:
    from shardguide.guidance.serialise import to_json

    sys.stdout.write(to_json(record))


def _verify(arguments: Namespace) -> int:
    from shardguide.workflows.verify import verify

    record = verify(arguments.torch, arguments.site_packages)
    if wants_json(arguments):
        _json(record)
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
