"""``shardguide review``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, output
from .parser import add_common

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide review train.py
  shardguide review src/ --torch 2.9
  shardguide review src/ --select FSD2,FSD7 --ignore FSD705
  shardguide review train.py --diff > fixes.patch

exit status: 0 nothing found; 1 findings; 2 unusable input, or files that could not be read and no finding in the others
switch a finding off on its line: # shardguide: ignore[FSD201]"""


def configure(parser: ArgumentParser) -> None:
    """What is reviewed, and by which rules."""
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="*", metavar="PATH", help="Python files, or folders of them")
    parser.add_argument("--select", metavar="CODES", default="", help="only these rules: FSD201, or FSD2 for an area")
    parser.add_argument("--ignore", metavar="CODES", default="", help="all rules but these")
    parser.add_argument("--diff", action="store_true", help="the safe fixes as one unified diff; nothing is written")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.review

    _ = shardguide.workflows.review


def call(arguments: Namespace) -> int:
    """Review and show; status 1 with findings."""
    from shardguide.frontends import conduct
    from shardguide.workflows.review import ReviewRequest, check

    def make(remembered: dict[str, Any]) -> Guidance:
        return check(
            ReviewRequest(
                tuple(arguments.paths),
                _codes(arguments.select),
                _codes(arguments.ignore),
                arguments.torch,
                remembered,
                arguments.site_packages,
            )
        )

    with desk.notebook(arguments) as notebook:
        record = conduct.conduct(make, notebook)
    if arguments.diff:
        from shardguide.workflows.review.fixes import unified

        sys.stdout.write(unified(record["findings"]))
    else:
        output.show(record, arguments)
    return 1 if record["findings"] else 2 if record["problems"] else 0


def _codes(text: str) -> tuple[str, ...]:
    return tuple(part.strip().upper() for part in text.split(",") if part.strip())
