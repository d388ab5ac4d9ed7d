"""``shardguide init``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk
from .parser import add_common
from .situation import ask_and_answer
from .stated import add_fields, given, show

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide init --method env --backend nccl
  shardguide init --method tcp --backend gloo --launcher hand --address node0:29500 --world-size 4 --rank 0
  shardguide init --method file --backend gloo --launcher slurm --path /shared/run1.init
  shardguide init --call 'dist.init_process_group("nccl", init_method="tcp://10.0.0.1:29500", rank=r)'"""


def configure(parser: ArgumentParser) -> None:
    """One option for every field, and a call to check."""
    from shardguide.workflows.init.fields import FIELDS

    parser.epilog = EPILOG
    add_fields(parser, FIELDS, {})
    parser.add_argument(
        "--call",
        default="",
        metavar="CODE",
        help="an init_process_group(...) call of yours, to be checked (- reads standard input)",
    )
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.init

    _ = shardguide.workflows.init


def call(arguments: Namespace) -> int:
    """Write the call, check the user's, ask what is missing, show."""
    from shardguide.frontends import conduct
    from shardguide.workflows.init import InitRequest, init
    from shardguide.workflows.init.fields import FIELDS, MOST_OF_A_CALL

    stated = given(arguments, FIELDS)
    pasted = sys.stdin.read(MOST_OF_A_CALL + 1) if arguments.call == "-" else arguments.call
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return init(InitRequest(stated, remembered, arguments.site_packages, pasted))

        record = ask_and_answer(arguments, stated, lambda: conduct.conduct(make, notebook), FIELDS)
        return show(record, arguments)
