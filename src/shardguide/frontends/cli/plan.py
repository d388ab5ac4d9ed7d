"""``shardguide plan``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.workflows.request import ON_REQUEST

from . import desk, output
from .parser import add_common
from .situation import add_situation, ask_and_answer, given, request
from .stated import snippet

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance
    from shardguide.notebook import Notebook

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
            _write(record, notebook, arguments)
        return status


def _write(record: dict[str, Any], notebook: Notebook, arguments: Namespace) -> None:
    """Write the plan's files where ``--write`` says; without a terminal only a plan that was approved by its id."""
    from shardguide.frontends import offering
    from shardguide.frontends.render.safe import one_line

    from .apply import asked, show

    folder = one_line(arguments.write)
    change = offering.into(notebook, record, arguments.write)
    if not change.files:
        print(f"\nNothing to write: {folder} holds these files already.", file=sys.stderr)
        return
    approved = record["approval"]["state"] == "approved"
    ask = asked(arguments, f"approve the plan first (shardguide approve {change.id}) and repeat the command")
    print(f"\nApproved before as {change.id}." if approved else "", file=sys.stderr)
    written = offering.offered(notebook, change, show, (lambda _: True) if approved else ask, brief=True)
    print(f"Wrote {', '.join(map(one_line, written))}." if written else "Nothing was written.", file=sys.stderr)
