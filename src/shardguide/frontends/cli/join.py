"""``shardguide join``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk
from .parser import add_common
from .situation import ask_and_answer
from .stated import add_fields, given, show

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

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
    import shardguide.frontends.conduct
    import shardguide.workflows.join

    _ = shardguide.workflows.join


def call(arguments: Namespace) -> int:
    """Advise on Join, ask what is missing, show."""
    from shardguide.frontends import conduct
    from shardguide.workflows.join import JoinRequest, join
    from shardguide.workflows.join.fields import FIELDS

    stated = given(arguments, FIELDS)
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return join(JoinRequest(stated, remembered, arguments.site_packages))

        return show(ask_and_answer(arguments, stated, lambda: conduct.conduct(make, notebook), FIELDS), arguments)
