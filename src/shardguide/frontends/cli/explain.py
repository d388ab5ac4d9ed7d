"""``shardguide explain``: a subject with its sources and code that was run."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, output, stated
from .parser import add_common, wants_json

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide explain                              what there is
  shardguide explain gradient-clipping
  shardguide explain wrapping --architecture moe
  shardguide explain mixed-precision --form fsdp1 --torch 2.5
  shardguide explain gradient-clipping --show fsdp2-clip > clip.py
  shardguide explain FSD201                       a rule of review; explain rules lists them
  shardguide explain --full-script > train.py     a whole script, only when you ask for it"""


def configure(parser: ArgumentParser) -> None:
    """The topic and what narrows it down."""
    parser.epilog = EPILOG
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help="a topic; without one they are listed")
    parser.add_argument("--architecture", metavar="X", help="transformer, moe, vision, multi-tower or tied")
    parser.add_argument("--form", metavar="X", help="fsdp2, fsdp1, ddp or c10d")
    parser.add_argument("--full-script", action="store_true", help="a whole training script")
    parser.add_argument("--docs", metavar="FOLDER", help="downloaded documentation, in which pages are opened again")
    parser.add_argument("--show", metavar="ID", help="print one snippet only")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.explain

    _ = shardguide.workflows.explain


def call(arguments: Namespace) -> int:
    """Explain, or list what can be explained."""
    from shardguide.frontends import conduct
    from shardguide.workflows.explain import ExplainRequest, explain, listing

    topic = " ".join(arguments.topic)
    if topic[:3].upper() == "FSD" and not arguments.full_script:
        from shardguide.workflows.review.rules import is_code

        if is_code(topic):
            return _rule(topic, arguments)
    if topic == "rules" and not arguments.full_script:
        from . import review

        return review.rules(arguments)
    if not topic and not arguments.full_script and not arguments.architecture:
        if not arguments.show:
            return _list(listing(arguments.form or ""), arguments)
        topic = arguments.show  # a pattern's own name finds its page
    if topic and arguments.full_script:
        raise UnusableInput("--full-script is a script of its own; leave the topic out, or the option.")

    def make(remembered: dict[str, Any]) -> Guidance:
        return explain(
            ExplainRequest(
                topic,
                arguments.architecture or "",
                arguments.form or "",
                arguments.full_script,
                arguments.torch,
                remembered,
                arguments.site_packages,
                arguments.docs or "",
            )
        )

    with desk.notebook(arguments) as notebook:
        record = conduct.conduct(make, notebook)
        text = not wants_json(arguments) and arguments.format != "md"
        if arguments.full_script and not arguments.show and text and not sys.stdout.isatty():
            arguments.show = next((one["id"] for one in record["snippets"]), None)  # into a file: the script alone
            if not arguments.show and record["notes"]:
                raise UnusableInput(record["notes"][0])
        return stated.show(record, arguments)


def _rule(code: str, arguments: Namespace) -> int:
    """A rule of ``review``."""
    from shardguide.workflows.review.rules import one

    record = one(code)
    if wants_json(arguments):
        output.as_json(record)
    else:
        from shardguide.frontends.render.rules_view import rule

        output.page(rule(record), arguments.format)
    return 0


def _list(record: dict[str, Any], arguments: Namespace) -> int:
    if wants_json(arguments):
        output.as_json(record)
    else:
        from shardguide.frontends.render.explain_view import listing

        output.page(listing(record), arguments.format)
    return 0
