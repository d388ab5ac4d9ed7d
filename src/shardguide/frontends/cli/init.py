"""``shardguide init``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from .parser import add_common
from .stated import add_fields, answer

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
    import shardguide.frontends.cli.situation
    import shardguide.frontends.conduct
    import shardguide.workflows.init

    _ = shardguide.workflows.init


def call(arguments: Namespace) -> int:
    """Write the call, check the user's, ask what is missing, show."""
    from shardguide.workflows.init import InitRequest, init
    from shardguide.workflows.init.fields import FIELDS, MOST_OF_A_CALL

    pasted = sys.stdin.read(MOST_OF_A_CALL + 1) if arguments.call == "-" else arguments.call
    return answer(
        arguments, FIELDS, lambda said, remembered: init(InitRequest(said, remembered, arguments.site_packages, pasted))
    )
