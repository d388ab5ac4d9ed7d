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
  docs list             the reference documents
  docs view NAME        one of them, as Markdown: every statement with its source, and the code for it
  docs search WORDS     where these words stand in them

examples:
  shardguide docs api fully_shard --torch 2.6
  shardguide docs api FSDPModule.reshard
  shardguide docs api TORCH_NCCL_ASYNC_ERROR_HANDLING
  shardguide docs api --nproc-per-node
  shardguide docs changes 2.11 2.15
  shardguide docs verify --docs pytorch/docs/source
  shardguide docs view join | less
  shardguide docs search gradient clipping"""


def configure(parser: ArgumentParser) -> None:
    """What to look up."""
    parser.epilog = EPILOG
    parser.usage = "%(prog)s {api NAME | changes A B | verify | list | view NAME | search WORDS} [options]"
    # Options may stand between the action and its names, whose number only the action knows.
    parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
    parser.add_argument("action", choices=tuple(ACTIONS), help="what to do; see below")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="api: a name, an option of torchrun or a variable; changes: two releases; view: a document; search: words",
    )
    add_common(parser)
    parser.add_argument(
        "--docs",
        metavar="FOLDER",
        help="verify: downloaded documentation (HTML, Markdown, reST) in which claims about pages are opened again",
    )
    from shardguide.knowledge import api

    for option in api.options():  # torchrun's, so that one can be named as it is written
        spellings = dict.fromkeys((option, option.replace("-", "_").replace("__", "--", 1)))
        parser.add_argument(*spellings, dest="options", action="append_const", const=option, help=SUPPRESS)


def prepare(arguments: Namespace) -> None:
    """Open the index that ``search`` reads: the guard, once it is on, lets nobody open a database by URI."""
    if arguments.action == "search":
        from shardguide.knowledge import ask_store

        ask_store.connection()


def call(arguments: Namespace) -> int:
    """Status 1 when a claim that should hold for the release was not found again, or when a search finds nothing."""
    return ACTIONS[arguments.action](arguments)


def _api(arguments: Namespace) -> int:
    from shardguide.workflows.reference import name

    names = [*arguments.names, *(arguments.options or ())]
    if len(names) != 1:
        raise UnusableInput("docs api needs one name, for example: shardguide docs api fully_shard.")
    record = name(names[0], arguments.torch, arguments.site_packages)
    if wants_json(arguments):
        output.as_json(record)
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
        output.as_json(record)
    else:
        from shardguide.frontends.render.reference_view import changes_page

        output.page(changes_page(record, arguments.verbose), arguments.format)
    return 0


def _verify(arguments: Namespace) -> int:
    if arguments.names or arguments.options:
        raise UnusableInput("docs verify takes no names; it looks every claim up.")
    from shardguide.workflows.verify import verify

    record = verify(arguments.torch, arguments.site_packages, arguments.docs)
    if wants_json(arguments):
        output.as_json(record)
    else:
        output.page(_view(record, arguments.verbose, bool(arguments.docs)), arguments.format)
    return 1 if record["not_found"] else 0


def _view(record: dict[str, Any], verbose: bool, docs: bool) -> list[Block]:
    where = record["torch"]["path"] or "no PyTorch at hand"
    opened = (("opened again in --docs", str(record["pages_opened"]), ""),) if docs else ()
    rows = (
        ("claims for this release", str(record["claims"]), ""),
        ("found again", str(record["found"]), "passed" if not record["not_found"] else "failed"),
        *opened,
        ("on documentation pages only", str(record["page_only"]), ""),
        ("not found", str(len(record["not_found"])), "failed" if record["not_found"] else ""),
    )
    out: list[Block] = [Title(f"Claims against PyTorch {record['torch']['version'] or '?'} ({where})"), Pairs(rows)]
    if record["not_found"]:
        items = (
            f"{one['id']}: {one['text']}" + (f" (not in {one['page']})" if one["page"] else "")
            for one in record["not_found"]
        )
        out.extend([Heading("Not found"), Items(tuple(items))])
    return out


def _list(arguments: Namespace) -> int:
    from shardguide.frontends.render.explain_view import listing as page
    from shardguide.workflows.explain import listing

    if arguments.names or arguments.options:
        raise UnusableInput(
            "docs list takes no names; docs view NAME shows a document, docs search WORDS looks for words."
        )
    record = listing()
    if wants_json(arguments):
        output.as_json(record)
    else:
        output.page(page(record, "docs view"), arguments.format)
    return 0


def _document(arguments: Namespace) -> int:
    """One reference document, complete, as Markdown: to be read through, so nothing of it is kept in the notebook."""
    from shardguide.frontends.render.explain_view import view
    from shardguide.guidance.serialise import to_dict
    from shardguide.workflows.explain import ExplainRequest, explain

    name = " ".join([*arguments.names, *(arguments.options or ())])
    if not name:
        raise UnusableInput("docs view needs the name of a document; docs list shows them.")
    request = ExplainRequest(
        name, torch=arguments.torch, site_packages=arguments.site_packages, docs=arguments.docs or ""
    )
    record = to_dict(explain(request))
    if wants_json(arguments):
        output.as_json(record)
        return 0
    output.page(view(record, verbose=True), arguments.format if sys.stdout.isatty() else "md")
    return 0


def _search(arguments: Namespace) -> int:
    from shardguide.workflows.ask import search

    words = " ".join([*arguments.names, *(arguments.options or ())])
    if not words.strip():
        raise UnusableInput("docs search needs words, for example: shardguide docs search gradient clipping.")
    record = search(words)
    if wants_json(arguments):
        output.as_json(record)
    else:
        from shardguide.frontends.render.ask_view import found

        output.page(found(record), arguments.format)
    return 0 if record["found"] else 1


ACTIONS = {
    "api": _api,
    "changes": _changes,
    "verify": _verify,
    "list": _list,
    "view": _document,
    "search": _search,
}
