"""``shardguide join``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .parser import add_common
from .stated import add_fields, answer

EPILOG = """examples:
  shardguide join --with ddp,zero --uneven yes --on-exhausted drain --collectives no
  shardguide join --with ddp,own --uneven yes --on-exhausted stop --collectives yes
  shardguide join --with fsdp --uneven yes --on-exhausted stop"""


def configure(parser: ArgumentParser) -> None:
    """One option for every field."""
    from shardguide.workflows.join.fields import FIELDS

    parser.epilog = EPILOG
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

    return answer(
        arguments, FIELDS, lambda said, remembered: join(JoinRequest(said, remembered, arguments.site_packages))
    )
