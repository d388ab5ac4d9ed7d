"""``shardguide migrate``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, output
from .parser import add_common

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide migrate train.py
  shardguide migrate src/ --torch 2.9 --diff > fsdp2.patch
  patch -p1 < fsdp2.patch

exit status: 0 everything was dealt with, or there was nothing to do; 1 something was left as it is; 2 unusable input
Hand over all files that belong together: what a model is shows in the file that wraps it. Nothing is written."""


def configure(parser: ArgumentParser) -> None:
    """What is migrated."""
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="*", metavar="PATH", help="Python files, or folders of them")
    parser.add_argument("--to", default="fsdp2", metavar="fsdp2", help="what to migrate to (fsdp2)")
    parser.add_argument("--diff", action="store_true", help="print the unified diff and nothing else")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.migrate

    _ = shardguide.workflows.migrate


def call(arguments: Namespace) -> int:
    """Migrate and show; status 1 where something was left."""
    from shardguide.frontends import conduct
    from shardguide.workflows.migrate import MigrateRequest, run

    def make(remembered: dict[str, Any]) -> Guidance:
        return run(
            MigrateRequest(tuple(arguments.paths), arguments.to, arguments.torch, remembered, arguments.site_packages)
        )

    with desk.notebook(arguments) as notebook:
        record = conduct.conduct(make, notebook)
    if arguments.diff:
        sys.stdout.write(record["diff"])
    else:
        output.show(record, arguments)
    left = any(use["status"] == "left" for use in record["uses"])
    return 1 if left else 2 if record["problems"] and not record["uses"] else 0
