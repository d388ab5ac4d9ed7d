"""Options made of a workflow's fields, for the commands that need no model and no cluster."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.workflows.fields import Field

from . import output
from .parser import wants_json

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance


def add_fields(parser: ArgumentParser, fields: tuple[Field, ...], other_names: dict[str, str]) -> None:
    """One option for every field; ``other_names`` holds a second option string by field name."""
    for field in fields:
        flags = [f"--{field.name.replace('_', '-')}"]
        if field.name in other_names:
            flags.insert(0, other_names[field.name])
        parser.add_argument(*flags, dest=field.name, metavar=field.metavar or "X", help=field.help)
    parser.add_argument("--show", metavar="ID", help="print one snippet only")


def given(arguments: Namespace, fields: tuple[Field, ...]) -> dict[str, Any]:
    """What the command line states, by field name, the release among it."""
    names = {field.name for field in fields} | {"torch"}
    return {name: value for name, value in vars(arguments).items() if name in names and value is not None}


def answer(
    arguments: Namespace, fields: tuple[Field, ...], make: Callable[[dict[str, Any], dict[str, Any]], Guidance]
) -> int:
    """Run a workflow of fields, ask what is missing, show; returns the exit status.

    ``make`` takes what is stated and what is remembered.
    """
    from shardguide.frontends import conduct

    from . import desk
    from .situation import ask_and_answer

    said = given(arguments, fields)
    with desk.notebook(arguments) as notebook:

        def work() -> dict[str, Any]:
            return conduct.conduct(lambda remembered: make(said, remembered), notebook)

        return show(ask_and_answer(arguments, said, work, fields), arguments)


def show(record: dict[str, Any], arguments: Namespace) -> int:
    """Print the record, or with ``--show ID`` one snippet alone; returns the exit status."""
    return snippet(record, arguments, "answer") if arguments.show else output.show(record, arguments)


def snippet(record: dict[str, Any], arguments: Namespace, kind: str) -> int:
    """Print the text of the snippet that ``--show`` names, to be redirected into a file; returns the exit status.

    ``kind`` is what the record is called ("plan"). Raises UnusableInput where it has no such snippet.
    """
    found = [one for one in record["snippets"] if one["id"] == arguments.show]
    if not found:
        have = ", ".join(one["id"] for one in record["snippets"]) or "none yet"
        raise UnusableInput(f"there is no snippet {arguments.show!r} in this {kind}; it has {have}.")
    if wants_json(arguments):
        output.as_json(found[0])
    else:
        sys.stdout.write(found[0]["code"])
    return output.STATUS.get(record["status"], 0)
