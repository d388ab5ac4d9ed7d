"""``shardguide plan``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from shardguide.frontends import conduct
from shardguide.frontends.render.plan_view import view
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Guidance
from shardguide.workflows import fields
from shardguide.workflows.plan import PlanRequest, plan
from shardguide.workflows.plan.code import ON_REQUEST

from . import asking, desk, output
from .parser import add_common, wants_json

EPILOG = """examples:
  shardguide plan ./Llama-3.1-8B --gpus 16 --nodes 2 --gpu "H100 SXM 80GB" --intra nvlink \\
      --inter infiniband --optimizer adamw --param-dtype float32
  shardguide plan 7b --gpus 8 --gpu-memory 80GB --from nvidia-smi.txt
  shardguide plan config.json --measured memory.json --also accelerate --write launch/

What is missing is asked on a terminal; without one (or with --no-input) it comes back as
questions, with everything already worked out, and exit status 3."""


def configure(parser: ArgumentParser) -> None:
    """The options; one for every field that is not positional."""
    parser.epilog = EPILOG
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="config.json or its folder, safetensors files or their index, a shape manifest, or a size such as 7b",
    )
    for field in fields.PLAN:
        if field.help:
            parser.add_argument(f"--{field.name.replace('_', '-')}", metavar=field.metavar or "X", help=field.help)
    parser.add_argument("--from", dest="files", action="append", default=[], metavar="FILE", help="collect_env, nvidia-smi, topo -m or CSV output, accelerate YAML (repeatable)")
    parser.add_argument("--measured", action="append", default=[], metavar="FILE", help="memory_stats JSON, nccl-tests output, step times (repeatable)")
    parser.add_argument("--current", metavar="FILE", help="what you run now: FSDP code or accelerate YAML")
    parser.add_argument("--also", action="append", default=[], choices=ON_REQUEST, help="further forms (repeatable)")
    parser.add_argument("--show", metavar="ID", help="print one snippet only, e.g. fsdp2, sbatch, measure")
    parser.add_argument("--write", metavar="DIR", help="write the plan's files there, after showing them and a yes")
    add_common(parser)


def given(arguments: Namespace) -> dict[str, Any]:
    """What the command line states, by field name."""
    names = {field.name for field in fields.PLAN}
    return {name: value for name, value in vars(arguments).items() if name in names and value is not None}


def call(arguments: Namespace) -> int:
    """Plan, ask what is missing, show, write on request."""
    stated = given(arguments)
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return plan(
                PlanRequest(
                    given=stated,
                    remembered=remembered,
                    files=tuple(arguments.files),
                    measured=tuple(arguments.measured),
                    current=arguments.current or "",
                    site_packages=arguments.site_packages,
                    also=tuple(arguments.also),
                )
            )

        record = conduct.conduct(make, notebook)
        if asking.may_ask(arguments):
            record = _ask(record, stated, lambda: conduct.conduct(make, notebook))
        if arguments.show:
            return _show_one(record, arguments)
        status = output.show(record, arguments, view)
        if arguments.write:
            from .writing import write_plan

            write_plan(record, arguments.write, may_ask=asking.may_ask(arguments))
        return status


def _ask(record: dict[str, Any], stated: dict[str, Any], again: Any) -> dict[str, Any]:
    """Put each open question once; an answer may close others or open new ones."""
    asked: set[str] = set()
    while True:
        open_ = [question for question in record["questions"] if question["id"] not in asked]
        if not open_:
            return record
        question = open_[0]
        asked.add(question["id"])
        text = asking.ask(question)
        if not text:
            continue
        before = stated.get(question["id"])
        stated[question["id"]] = text
        try:
            record = again()
        except UnusableInput as error:
            print(f"  {error}", file=sys.stderr)
            asked.discard(question["id"])
            stated.pop(question["id"])
            if before is not None:
                stated[question["id"]] = before


def _show_one(record: dict[str, Any], arguments: Namespace) -> int:
    """Only a snippet's text, to be redirected into a file."""
    found = [snippet for snippet in record["snippets"] if snippet["id"] == arguments.show]
    if not found:
        have = ", ".join(snippet["id"] for snippet in record["snippets"]) or "none yet"
        raise UnusableInput(f"there is no snippet {arguments.show!r} in this plan; it has {have}.")
    if wants_json(arguments):
        from shardguide.guidance.serialise import to_json

        sys.stdout.write(to_json(found[0]))
    else:
        sys.stdout.write(found[0]["code"])
    return output.STATUS.get(record["status"], 0)
