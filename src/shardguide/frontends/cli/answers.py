"""``shardguide answers show|set|forget``, and the whole notebook as JSON: ``export``, ``import``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.frontends.conduct import project
from shardguide.frontends.render.blocks import Block, Pairs, Text, Title
from shardguide.guidance.errors import UnusableInput
from shardguide.notebook import commands

from . import desk, output
from .parser import add_common, wants_json

EPILOG = """examples:
  shardguide answers set optimizer adamw
  shardguide answers export > notebook.json       everything: answers, guidance and approvals of all projects
  shardguide answers import notebook.json         adds what is not known here yet"""


def configure(parser: ArgumentParser) -> None:
    """What to do, and with which answer."""
    parser.epilog = EPILOG
    parser.add_argument(
        "action", nargs="?", default="show", choices=("show", "set", "forget", "export", "import"), help="default: show"
    )
    parser.add_argument(
        "name", nargs="?", help="of the answer, e.g. gpus or param-dtype; the file for import (- for standard input)"
    )
    parser.add_argument("value", nargs="?", help="for set")
    parser.add_argument("--global", dest="everywhere", action="store_true", help="the default for all projects")
    parser.add_argument("--all", dest="every", action="store_true", help="forget every answer of the project")
    add_common(parser)


def call(arguments: Namespace) -> int:
    """Show, set or forget; what is set is read as the option of that name would be."""
    if arguments.action in ("export", "import"):
        return _exchange(arguments)
    owner = "" if arguments.everywhere else project()
    name = arguments.name and field_name(arguments.name)
    with desk.notebook(arguments) as notebook:
        if arguments.action == "set":
            if not name or arguments.value is None:
                raise UnusableInput("answers set needs a name and a value, for example: shardguide answers set gpus 16")
            record = commands.answers_set(notebook, owner, name, checked(name, arguments.value))
        elif arguments.action == "forget":
            if not name and not arguments.every:
                raise UnusableInput("answers forget needs a name, or --all for every answer of this project.")
            record = commands.answers_forget(notebook, owner, name)
        else:
            record = commands.answers_show(notebook, owner, name)
    if wants_json(arguments):
        output.as_json(record)
        return 0
    output.page(_view(record, name or ""), arguments.format)
    return 0


def _exchange(arguments: Namespace) -> int:
    """The whole notebook to standard output, or what an export holds into it."""
    with desk.notebook(arguments) as notebook:
        if arguments.action == "export":
            if arguments.name:
                raise UnusableInput("answers export writes to standard output: shardguide answers export > FILE.")
            output.as_json(notebook.export())
            return 0
        if not arguments.name:
            raise UnusableInput("answers import needs the file that answers export wrote, or - for standard input.")
        from shardguide.readers.files import decode, read_bytes, shown

        added = commands.import_text(
            notebook, decode(read_bytes(arguments.name, commands.MAX_IMPORT), shown(arguments.name))
        )
    if wants_json(arguments):
        output.as_json({"added": added})
    else:
        new = ", ".join(f"{count} {kind}" for kind, count in added.items() if count)
        output.page([Text(f"New here: {new or 'nothing; all of it was known'}.")], arguments.format)
    return 0


def field_name(text: str) -> str:
    """The answer's name; an option's spelling, with dashes, is as good."""
    return text.strip().removeprefix("--").replace("-", "_")


def checked(name: str, value: str) -> str:
    """The value, refused now rather than at the next plan if the field of that name would refuse it."""
    from shardguide.workflows import fields
    from shardguide.workflows.backend.fields import IPOIB, SYSTEM

    known = {field.name: field for field in (*fields.PLAN, SYSTEM, IPOIB)}
    if name not in known:
        raise UnusableInput(f"there is no answer {name[:40]!r}; there are {', '.join(known)}.")
    return str(known[name].parse(value))


def _view(record: dict[str, object], name: str = "") -> list[Block]:
    if "forgotten" in record:
        gone = record["forgotten"]
        return [
            Text(
                f"Forgotten: {', '.join(gone)}." if isinstance(gone, list) and gone else "There was nothing to forget."
            )
        ]
    answers = record["answers"]
    assert isinstance(answers, list)
    if not answers:
        if name:
            return [Text(f"No answer {name[:40]!r} is remembered for this project.")]
        return [Text("Nothing is remembered for this project yet.")]
    rows = tuple((a["name"], f"{a['value']}  [{a['from']}, {a['since'][:10]}, {a['scope']}]", "") for a in answers)
    return [Title("Remembered answers"), Pairs(rows)]
