"""``shardguide backend``."""

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
  shardguide backend --device cuda --interconnect infiniband --os linux
  shardguide backend --device cuda --interconnect ethernet --os linux --offload yes
  shardguide backend --device cpu --interconnect ethernet --os linux --needs all_gather,all_to_all"""


def configure(parser: ArgumentParser) -> None:
    """One option for every field."""
    from shardguide.workflows.backend.fields import FIELDS

    parser.epilog = EPILOG
    add_fields(parser, FIELDS, {"inter": "--interconnect"})
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.backend

    _ = shardguide.workflows.backend


def call(arguments: Namespace) -> int:
    """Recommend a backend, ask what is missing, show."""
    from shardguide.frontends import conduct
    from shardguide.workflows.backend import BackendRequest, backend
    from shardguide.workflows.backend.fields import FIELDS

    stated = given(arguments, FIELDS)
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return backend(BackendRequest(stated, remembered, arguments.site_packages))

        record = ask_and_answer(arguments, stated, lambda: conduct.conduct(make, notebook), FIELDS)
        if stated.get("device") == "mps":  # not an answer for the workflows that plan FSDP, which have no such device
            notebook.forget(conduct.project(), "device")
        return show(record, arguments)
