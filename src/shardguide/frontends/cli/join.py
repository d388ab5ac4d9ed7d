"""``shardguide join``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .parser import add_common
from .stated import add_fields, answer

EPILOG = """examples:
  shardguide join --with ddp,zero --uneven yes --on-exhausted drain --collectives no
  shardguide join --with ddp,own --uneven yes --on-exhausted stop --collectives yes
  shardguide join --with fsdp --uneven yes --on-exhausted stop
  shardguide join train.py joinables.py      (do the hooks shadow each iteration? read, never run)"""


def configure(parser: ArgumentParser) -> None:
    """The code to be checked, and one option for every field."""
    from shardguide.workflows.join.fields import FIELDS

    parser.epilog = EPILOG
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="code to check: Joinables, their hooks, the loops around"
    )
    parser.add_argument("--code", action="append", metavar="PATH", default=[], help="the same as PATH")
    add_fields(parser, FIELDS, {})
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.cli.situation
    import shardguide.frontends.conduct
    import shardguide.workflows.join

    _ = shardguide.workflows.join


def call(arguments: Namespace) -> int:
    """Advise on Join, ask what is missing, show."""
    from shardguide.workflows.join import JoinRequest, join
    from shardguide.workflows.join.fields import FIELDS

    paths = (*arguments.paths, *arguments.code)
    return answer(
        arguments, FIELDS, lambda said, remembered: join(JoinRequest(said, remembered, arguments.site_packages, paths))
    )
