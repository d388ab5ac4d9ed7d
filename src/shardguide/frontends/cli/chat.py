"""``shardguide chat``, and ``shardguide`` alone where somebody talks to it: the guided conversation."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING

from . import desk, output
from .parser import add_common

if TYPE_CHECKING:
    from shardguide.frontends.render.blocks import Block

EPILOG = """examples:
  shardguide                                       on a terminal
  shardguide chat my 70B run hangs after the first epoch on 4 nodes
  printf 'backend\\ncuda\\ninfiniband\\nlinux\\n' | shardguide       one answer a line

It asks only what is neither known nor said. help lists what can be typed; Ctrl-C or quit leaves, and the next start
offers to go on."""
KEPT = "Kept. The next shardguide chat in this folder offers to go on."


def configure(parser: ArgumentParser) -> None:
    """First words, if any."""
    parser.epilog = EPILOG
    parser.add_argument("words", nargs="*", metavar="WORDS", help="what it is about, in your own words")
    add_common(parser)


def prepare(arguments: Namespace) -> None:
    """What the guard would look at module by module, and the index of questions, before it is on."""
    if arguments.json or arguments.format != "text":
        raise UnusableInput("a conversation is text; shardguide ask, plan, diagnose … print JSON.")
    import ahocorasick_rs

    import shardguide.frontends.chat.talk
    from shardguide.knowledge import ask_store

    ask_store.connection()
    if _terminal():
        import shardguide.frontends.chat.history

        if not _plain():
            import shardguide.frontends.chat.terminal

    _ = ahocorasick_rs, shardguide


def call(arguments: Namespace) -> int:
    """Talk until the user leaves; what was said is kept."""
    from shardguide.frontends.chat import lines
    from shardguide.frontends.chat.talk import Read, Talk

    with desk.notebook(arguments) as notebook:
        read: Read = lines.read
        if _terminal():
            from shardguide.frontends.chat import history

            read = lines.read_typed
            if not _plain():
                from shardguide.frontends.chat import terminal

                read = terminal.reader(history.earlier(notebook), "NO_COLOR" not in os.environ)
            read = history.kept(read, notebook)
        talk = Talk(read, _show, notebook, arguments.torch, arguments.site_packages)
        try:
            talk.run(" ".join(arguments.words))
        except EOFError:
            pass
        except KeyboardInterrupt:
            print()
        if talk.state.task and not talk.state.settled:
            print(KEPT)
        if notebook.unavailable:
            print(f"Not kept in the notebook: {notebook.unavailable}.", file=sys.stderr)
    return 0


def _terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _plain() -> bool:
    """A terminal that can only print, as screen readers and editors' shells ask for."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")


def _show(blocks: list[Block]) -> None:
    if blocks:
        sys.stdout.write("\n")
        output.page(blocks)
        sys.stdout.flush()
