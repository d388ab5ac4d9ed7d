"""``shardguide ask``: a question in words, answered from the sources or honestly not."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, stated
from .parser import add_common

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide ask "how do I clip gradients with FSDP2?"
  shardguide ask "which configuration for my 70B on 4x8 H100?"
  shardguide ask "code for gradient accumulation on 2.8" --show fsdp2-accumulate
  shardguide ask - < question.txt

The answer is what the sources say; what they do not say is not known, and said to be."""


def configure(parser: ArgumentParser) -> None:
    """The question."""
    parser.epilog = EPILOG
    parser.add_argument("question", nargs="+", metavar="QUESTION", help="in your own words; - reads standard input")
    parser.add_argument("--show", metavar="ID", help="print one snippet only")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs, and open the index: the guard, once it is on, lets nobody open a database by URI."""
    import shardguide.frontends.conduct
    import shardguide.workflows.ask
    from shardguide.knowledge import ask_store

    _ = shardguide.workflows.ask
    ask_store.connection()


def call(arguments: Namespace) -> int:
    """Answer; status 0 for an honest "not known" too."""
    from shardguide.frontends import conduct
    from shardguide.workflows.ask import AskRequest, ask
    from shardguide.workflows.ask.reading import LONGEST

    text = " ".join(arguments.question)
    if text == "-":
        text = sys.stdin.read(LONGEST + 2)
    # Bytes that are no text in this locale come as lone surrogates, which cannot be printed again.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if not text.strip():
        raise UnusableInput(
            'ask needs a question in English words, for example: shardguide ask "how do I clip gradients?".'
        )

    def make(remembered: dict[str, Any]) -> Guidance:
        return ask(AskRequest(text, arguments.torch, remembered, arguments.site_packages))

    with desk.notebook(arguments) as notebook:
        return stated.show(conduct.conduct(make, notebook), arguments)
