"""``shardguide review``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, output
from .parser import add_common

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance
    from shardguide.workflows.review import ReviewRequest

EPILOG = """examples:
  shardguide review train.py
  shardguide review . --torch 2.9                        code, notebooks, launch scripts and configurations of a project
  shardguide review src/ --select FSD2,FSD7 --ignore FSD705
  shardguide review train.py --diff > fixes.patch
  shardguide review . --format sarif > review.sarif
  shardguide review . --baseline-out > known.json        then: --baseline known.json
  shardguide review --list                               all rules; shardguide explain FSD201 shows one

exit status: 0 nothing found; 1 findings; 2 unusable input, or files that could not be read and no finding in the others
switch a finding off on its line: # shardguide: ignore[FSD201], or # noqa: FSD201
settings: [tool.shardguide.review] in pyproject.toml (select, ignore, per-file-ignores, exclude, torch, baseline, format)"""


def configure(parser: ArgumentParser) -> None:
    """What is reviewed, and by which rules."""
    parser.epilog = EPILOG
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="files (code, notebooks, launch files), or folders of them"
    )
    parser.add_argument("--select", metavar="CODES", help="only these rules: FSD201, or FSD2 for an area")
    parser.add_argument("--ignore", metavar="CODES", help="all rules but these")
    parser.add_argument("--diff", action="store_true", help="the safe fixes as one unified diff; nothing is written")
    parser.add_argument("--baseline", metavar="FILE", help="hide the findings that FILE lists")
    parser.add_argument("--baseline-out", action="store_true", help="print what a baseline of all findings would be")
    parser.add_argument("--list", action="store_true", help="list the rules")
    add_common(parser)
    for action in parser._actions:
        if action.dest == "format":
            action.choices, action.default = ["text", "md", "json", "sarif", "github"], None
            action.help = "text (default), md, json, sarif or github"


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.review

    _ = shardguide.workflows.review


def call(arguments: Namespace) -> int:
    """Review and show; status 1 with findings."""
    if arguments.list:
        return rules(arguments)
    import gc

    gc.disable()  # the trees of a whole project live until the process ends: a pass over them takes a tenth of its time
    from shardguide.frontends import conduct
    from shardguide.workflows.review import check

    request = _request(arguments)

    def make(remembered: dict[str, Any]) -> Guidance:
        return check(request._replace(remembered=remembered))

    with desk.notebook(arguments) as notebook:
        record = conduct.conduct(make, notebook)
    if arguments.baseline_out:
        from shardguide.workflows.review.baseline import render

        sys.stdout.write(render(record["findings"]))
        return 2 if record["problems"] and not record["findings"] else 0
    _show(record, arguments)
    return 1 if record["findings"] else 2 if record["problems"] else 0


def _request(arguments: Namespace) -> ReviewRequest:
    """What the command line asks for; what it leaves open, the project's settings say."""
    from shardguide.workflows.review import ReviewRequest
    from shardguide.workflows.review.settings import settings

    project = settings(tuple(arguments.paths))
    arguments.format = "json" if arguments.json else arguments.format or project.format or "text"
    file = arguments.baseline if arguments.baseline is not None else project.baseline
    known: frozenset[str] = frozenset()
    if file and not arguments.baseline_out:
        from shardguide.workflows.review.baseline import read

        known = read(file)
    return ReviewRequest(
        tuple(arguments.paths),
        project.select if arguments.select is None else _codes(arguments.select),
        project.ignore if arguments.ignore is None else _codes(arguments.ignore),
        arguments.torch or project.torch or None,
        {},
        arguments.site_packages,
        project.per_file,
        project.exclude,
        project.root,
        known,
    )


def _show(record: dict[str, Any], arguments: Namespace) -> None:
    if arguments.diff:
        from shardguide.workflows.review.fixes import unified

        sys.stdout.write(unified(record["findings"]))
    elif arguments.format == "sarif":
        from shardguide.frontends.render.sarif import render as sarif

        from .main import VERSION

        sys.stdout.write(sarif(record, VERSION))
    elif arguments.format == "github":
        from shardguide.frontends.render.annotations import render as github

        sys.stdout.write(github(record))
    else:
        output.show(record, arguments)


def rules(arguments: Namespace) -> int:
    """List the rules."""
    from shardguide.workflows.review.rules import listing

    arguments.format = "json" if arguments.json else arguments.format or "text"
    record = listing()
    if arguments.format == "json":
        output.as_json(record)
    else:
        from shardguide.frontends.render.rules_view import listing as page

        output.page(page(record), arguments.format)
    return 0


def _codes(text: str) -> tuple[str, ...]:
    return tuple(part.strip().upper() for part in text.split(",") if part.strip())
