"""``shardguide plan``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.workflows.request import ON_REQUEST

from . import asking, desk, output
from .parser import add_common
from .situation import add_situation, ask_and_answer, given, request
from .stated import snippet

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide plan ./Llama-3.1-8B --gpus 16 --nodes 2 --gpu "H100 SXM 80GB" --intra nvlink \\
      --inter infiniband --optimizer adamw --param-dtype float32
  shardguide plan 7b --gpus 8 --gpu-memory 80GB --from nvidia-smi.txt
  shardguide plan config.json --measured memory.json --also accelerate --write launch/

What is missing is asked on a terminal; without one (or with --no-input) it comes back as
questions, with everything already worked out, and exit status 3."""


def configure(parser: ArgumentParser) -> None:
    """The options; one for every field that is not positional."""
    parser.epilog = EPILOG
    add_situation(parser)
    parser.add_argument("--also", action="append", default=[], choices=ON_REQUEST, help="further forms (repeatable)")
    parser.add_argument("--show", metavar="ID", help="print one snippet only, e.g. fsdp2, sbatch, measure")
    parser.add_argument("--write", metavar="DIR", help="write the plan's files there, after showing them and a yes")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.plan

    _ = shardguide.workflows.plan


def call(arguments: Namespace) -> int:
    """Plan, ask what is missing, show, write on request."""
    from shardguide.frontends import conduct
    from shardguide.workflows.plan import plan

    stated = given(arguments)
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return plan(request(arguments, stated, remembered)._replace(also=tuple(arguments.also)))

        record = ask_and_answer(arguments, stated, lambda: conduct.conduct(make, notebook))
        if arguments.show:
            return snippet(record, arguments, "plan")
        status = output.show(record, arguments)
        if arguments.write:
            from .writing import write_plan

            write_plan(record, arguments.write, may_ask=asking.may_ask(arguments))
        return status
