"""``shardguide apply ID``: writes what an answer proposed, after showing it and a yes."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from shardguide.frontends.render.safe import one_line
from shardguide.guidance.errors import UnusableInput

from . import asking, desk, output
from .parser import add_common, wants_json

EPILOG = """examples:
  shardguide apply 3f2a            show the diff, ask, write
  shardguide apply 3f2a --diff     show it only
  shardguide apply 3f2a --yes      write without asking

Only inside the folder that the answer was asked in, only what the diff shows, each file whole or not at all; what was
there stays beside it as NAME.bak (NAME.bak.1 where that is taken). A file that has changed since is refused."""


def configure(parser: ArgumentParser) -> None:
    """Which answer."""
    parser.epilog = EPILOG
    parser.add_argument("id", help="of the answer (its first digits suffice)")
    parser.add_argument("--diff", action="store_true", help="show what would be written, and write nothing")
    parser.add_argument("--yes", action="store_true", help="write without asking")
    add_common(parser)


def call(arguments: Namespace) -> int:
    """Show, ask, write."""
    from shardguide.frontends import applying, offering

    with desk.notebook(arguments) as notebook:
        change = offering.proposal(notebook, arguments.id)
        if arguments.diff:
            sys.stdout.write(applying.shown(change))
            return 0
        if arguments.yes:
            written = offering.carried_out(notebook, change)
        else:
            written = offering.offered(
                notebook, change, show, asked(arguments, f"shardguide apply {change.id} --yes does it")
            )
    if not written:
        print("Nothing was written.", file=sys.stderr)
    elif wants_json(arguments):
        output.as_json({"id": change.id, "written": written})
    else:
        print(f"Wrote {', '.join(one_line(name) for name in written)}.")
    return 0


def show(text: str) -> None:
    """What would be written, beside the output."""
    print(text, end="", file=sys.stderr)


def asked(arguments: Namespace, else_: str) -> Callable[[str], bool]:
    """A yes or no on the terminal. Raises UnusableInput where nobody is there, with what to do then."""

    def ask(question: str) -> bool:
        if not asking.may_ask(arguments):
            raise UnusableInput(f"nothing was written, since nobody is here to say yes: {else_}.")
        return asking.confirm(f"\n{question}")

    return ask
