"""``shardguide fsdp2``."""

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
    import shardguide.frontends.conduct
    import shardguide.workflows.fsdp2

    _ = shardguide.workflows.fsdp2


def call(arguments: Namespace) -> int:
    """Advise on FSDP2, ask what is missing, show."""
    from shardguide.frontends import conduct
    from shardguide.workflows.fsdp2 import Fsdp2Request, fsdp2
    from shardguide.workflows.fsdp2.fields import FIELDS

    stated = given(arguments, FIELDS)
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return fsdp2(Fsdp2Request(stated, remembered, arguments.site_packages))

        return show(ask_and_answer(arguments, stated, lambda: conduct.conduct(make, notebook), FIELDS), arguments)
