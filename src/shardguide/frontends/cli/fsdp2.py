"""``shardguide fsdp2``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .parser import add_common
from .stated import add_fields, answer

EPILOG = """examples:
  shardguide fsdp2 --goal memory,compile --torch 2.13
  shardguide fsdp2 --goal migrate --using fsdp1 --verbose"""


def configure(parser: ArgumentParser) -> None:
    """One option for every field."""
    from shardguide.workflows.fsdp2.fields import FIELDS

    parser.epilog = EPILOG
    add_fields(parser, FIELDS, {})
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.cli.situation
    import shardguide.frontends.conduct
    import shardguide.workflows.fsdp2

    _ = shardguide.workflows.fsdp2


def call(arguments: Namespace) -> int:
    """Advise on FSDP2, ask what is missing, show."""
    from shardguide.workflows.fsdp2 import Fsdp2Request, fsdp2
    from shardguide.workflows.fsdp2.fields import FIELDS

    return answer(
        arguments, FIELDS, lambda said, remembered: fsdp2(Fsdp2Request(said, remembered, arguments.site_packages))
    )
